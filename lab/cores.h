/* cores.h - processors for the laboratory's own threads. */
#ifndef CKL_LAB_CORES_H
#define CKL_LAB_CORES_H

/*
 * Processors that this process may keep busy: those of its affinity, and no more than the time that its control group is given.
 * More threads would be stopped, all of them, when that time is spent.
 */
int cores_available(void);

#endif
