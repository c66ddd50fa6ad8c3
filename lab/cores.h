/* cores.h - processors for the laboratory's own threads. */
#pragma once

/*
 * Processors that this process may keep busy: those of its affinity, but no more than the CPU time of its control
 * group. With more threads all of them would be stopped whenever that time is spent.
 */
int cores_available(void);
