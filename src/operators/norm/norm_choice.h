/* norm_choice.h - which config a problem gets, and which it may have. */
#ifndef CKL_NORM_CHOICE_H
#define CKL_NORM_CHOICE_H

#include "cutekernellib/operators/norm.h"
#include "operators/norm/norm_config.h"

/* As an implementation's choose and admit: plan/plan.h. */
ckl_status norm_choose_forward(const void *desc, const ckl_device_info *device, void *config);
ckl_status norm_choose_backward(const void *desc, const ckl_device_info *device, void *config);
ckl_status norm_admit_forward(const void *desc, const ckl_device_info *device, const void *config);
ckl_status norm_admit_backward(const void *desc, const ckl_device_info *device, const void *config);

#endif
