/* groupnorm_choice.h - which config a problem gets, and which it may have. */
#ifndef CKL_GROUPNORM_CHOICE_H
#define CKL_GROUPNORM_CHOICE_H

#include "cutekernellib/operators/groupnorm.h"
#include "operators/groupnorm/groupnorm_config.h"

/* Units of a channel: pixels, in vectors (nchw) or single ones. */
int64_t groupnorm_units(const ckl_groupnorm_desc *d, const groupnorm_config *c);

/* Slices of a bundle: the CTAs of its cluster, or as many as hold it. */
int64_t groupnorm_slices(const ckl_groupnorm_desc *d, const groupnorm_config *c, bool split);

/* Bundles of all images. */
int64_t groupnorm_bundles(const ckl_groupnorm_desc *d, const groupnorm_config *c);

/* `what` opens the sentence of a refusal. A bundle in a CTA or cluster, or split over CTAs that do not know each other. */
ckl_status groupnorm_choose(const char *what, const ckl_groupnorm_desc *d, const ckl_device_info *device, bool split,
                            groupnorm_config *c);
ckl_status groupnorm_admit(const char *what, const ckl_groupnorm_desc *d, const ckl_device_info *device, bool split,
                           const groupnorm_config *c);

#endif
