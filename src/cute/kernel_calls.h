/*
 * kernel_calls.h - the end of kernel.h, which alone includes it: functions of src/cute under their own names, called at
 * the line of the kernel file. A macro does not expand within itself, so that the name inside is the function.
 * Functions of layouts are not listed: they make no instructions.
 */
#pragma once

#define CUTE_CALL(call) (HERE, call)

/* mma.h */
#define make_tiled_mma(...)      CUTE_CALL(make_tiled_mma(__VA_ARGS__))
#define partition_A(...)         CUTE_CALL(partition_A(__VA_ARGS__))
#define partition_B(...)         CUTE_CALL(partition_B(__VA_ARGS__))
#define partition_C(...)         CUTE_CALL(partition_C(__VA_ARGS__))
#define fragment_A(...)          CUTE_CALL(fragment_A(__VA_ARGS__))
#define fragment_B(...)          CUTE_CALL(fragment_B(__VA_ARGS__))
#define fragment_C(...)          CUTE_CALL(fragment_C(__VA_ARGS__))
#define fragment_A_words(...)    CUTE_CALL(fragment_A_words(__VA_ARGS__))
#define fragment_B_words(...)    CUTE_CALL(fragment_B_words(__VA_ARGS__))
#define accumulators_to_A(...)   CUTE_CALL(accumulators_to_A(__VA_ARGS__))
#define accumulator_columns(...) CUTE_CALL(accumulator_columns(__VA_ARGS__))
#define descriptors_A(...)       CUTE_CALL(descriptors_A(__VA_ARGS__))
#define descriptors_B(...)       CUTE_CALL(descriptors_B(__VA_ARGS__))
#define gemm(...)                CUTE_CALL(gemm(__VA_ARGS__))
#define ldmatrix_A(...)          CUTE_CALL(ldmatrix_A(__VA_ARGS__))
#define ldmatrix_B(...)          CUTE_CALL(ldmatrix_B(__VA_ARGS__))
#define stmatrix_C(...)          CUTE_CALL(stmatrix_C(__VA_ARGS__))

/* tiled_copy.h and staging.h */
#define make_tiled_copy(...)   CUTE_CALL(make_tiled_copy(__VA_ARGS__))
#define make_tiled_copy_A(...) CUTE_CALL(make_tiled_copy_A(__VA_ARGS__))
#define make_tiled_copy_B(...) CUTE_CALL(make_tiled_copy_B(__VA_ARGS__))
#define make_tiled_copy_C(...) CUTE_CALL(make_tiled_copy_C(__VA_ARGS__))
#define staging_wait(...)      CUTE_CALL(staging_wait(__VA_ARGS__))
#define inside_limits(...)     CUTE_CALL(inside_limits(__VA_ARGS__))

/* pipeline.h */
#define make_pipeline(...)         CUTE_CALL(make_pipeline(__VA_ARGS__))
#define pipeline_init(...)         CUTE_CALL(pipeline_init(__VA_ARGS__))
#define producer_state(...)        CUTE_CALL(producer_state(__VA_ARGS__))
#define consumer_state(...)        CUTE_CALL(consumer_state(__VA_ARGS__))
#define pipeline_advance(...)      CUTE_CALL(pipeline_advance(__VA_ARGS__))
#define pipeline_advance_by(...)   CUTE_CALL(pipeline_advance_by(__VA_ARGS__))
#define pipeline_wait_empty(...)   CUTE_CALL(pipeline_wait_empty(__VA_ARGS__))
#define pipeline_expect(...)       CUTE_CALL(pipeline_expect(__VA_ARGS__))
#define pipeline_arrive(...)       CUTE_CALL(pipeline_arrive(__VA_ARGS__))
#define pipeline_full_barrier(...) CUTE_CALL(pipeline_full_barrier(__VA_ARGS__))
#define pipeline_wait_full(...)    CUTE_CALL(pipeline_wait_full(__VA_ARGS__))
#define pipeline_release(...)      CUTE_CALL(pipeline_release(__VA_ARGS__))
#define pipeline_release_at(...)   CUTE_CALL(pipeline_release_at(__VA_ARGS__))
#define pipeline_peer(...)         CUTE_CALL(pipeline_peer(__VA_ARGS__))

/* tma.h */
#define tma_ring(...)            CUTE_CALL(tma_ring(__VA_ARGS__))
#define tma_tiles(...)           CUTE_CALL(tma_tiles(__VA_ARGS__))
#define make_tma(...)            CUTE_CALL(make_tma(__VA_ARGS__))
#define tma_load(...)            CUTE_CALL(tma_load(__VA_ARGS__))
#define tma_load_of(...)         CUTE_CALL(tma_load_of(__VA_ARGS__))
#define make_tma_im2col(...)     CUTE_CALL(make_tma_im2col(__VA_ARGS__))
#define tma_load_im2col(...)     CUTE_CALL(tma_load_im2col(__VA_ARGS__))
#define tma_store(...)           CUTE_CALL(tma_store(__VA_ARGS__))
#define tma_store_of(...)        CUTE_CALL(tma_store_of(__VA_ARGS__))
#define tma_store_same(...)      CUTE_CALL(tma_store_same(__VA_ARGS__))
#define tma_add(...)             CUTE_CALL(tma_add(__VA_ARGS__))
#define tma_store_commit(...)    CUTE_CALL(tma_store_commit(__VA_ARGS__))
#define tma_store_wait_read(...) CUTE_CALL(tma_store_wait_read(__VA_ARGS__))
#define tma_store_wait(...)      CUTE_CALL(tma_store_wait(__VA_ARGS__))
#define tma_prefetch(...)        CUTE_CALL(tma_prefetch(__VA_ARGS__))

/* tensor.h and copy.h */
#define gmem_address(...)   CUTE_CALL(gmem_address(__VA_ARGS__))
#define gmem_vector(...)    CUTE_CALL(gmem_vector(__VA_ARGS__))
#define smem_tensor(...)    CUTE_CALL(smem_tensor(__VA_ARGS__))
#define fragment(...)       CUTE_CALL(fragment(__VA_ARGS__))
#define fragment_like(...)  CUTE_CALL(fragment_like(__VA_ARGS__))
#define tensor_address(...) CUTE_CALL(tensor_address(__VA_ARGS__))
#define bulk_load(...)      CUTE_CALL(bulk_load(__VA_ARGS__))
#define bulk_store(...)     CUTE_CALL(bulk_store(__VA_ARGS__))
#define packed_load(...)    CUTE_CALL(packed_load(__VA_ARGS__))
#define load_packed(...)    CUTE_CALL(load_packed(__VA_ARGS__))
#define load_packed_if(...) CUTE_CALL(load_packed_if(__VA_ARGS__))
#define unpacked(...)       CUTE_CALL(unpacked(__VA_ARGS__))

/* reduce.h */
#define fragment_sum(...)       CUTE_CALL(fragment_sum(__VA_ARGS__))
#define fragment_dot(...)       CUTE_CALL(fragment_dot(__VA_ARGS__))
#define warp_reduce(...)        CUTE_CALL(warp_reduce(__VA_ARGS__))
#define warp_reduce_across(...) CUTE_CALL(warp_reduce_across(__VA_ARGS__))
#define lanes_reduce(...)       CUTE_CALL(lanes_reduce(__VA_ARGS__))
#define warp_scan(...)          CUTE_CALL(warp_scan(__VA_ARGS__))
#define cta_reduce(...)         CUTE_CALL(cta_reduce(__VA_ARGS__))
#define cta_reduce_groups(...)  CUTE_CALL(cta_reduce_groups(__VA_ARGS__))
#define cta_reduce_to_warp(...) CUTE_CALL(cta_reduce_to_warp(__VA_ARGS__))
#define cluster_meet(...)       CUTE_CALL(cluster_meet(__VA_ARGS__))
#define cluster_reduce(...)     CUTE_CALL(cluster_reduce(__VA_ARGS__))

/* schedule.h and dynamic_scheduler.h */
#define make_tile_schedule(...)     CUTE_CALL(make_tile_schedule(__VA_ARGS__))
#define tile_at(...)                CUTE_CALL(tile_at(__VA_ARGS__))
#define make_dynamic_scheduler(...) CUTE_CALL(make_dynamic_scheduler(__VA_ARGS__))
#define scheduler_init(...)         CUTE_CALL(scheduler_init(__VA_ARGS__))
#define scheduler_fetch(...)        CUTE_CALL(scheduler_fetch(__VA_ARGS__))
#define scheduler_next(...)         CUTE_CALL(scheduler_next(__VA_ARGS__))

/* tensor.h */
#define coordinates_from(...)      CUTE_CALL(coordinates_from(__VA_ARGS__))
#define tensor_at_coordinates(...) CUTE_CALL(tensor_at_coordinates(__VA_ARGS__))
#define tensor_address_near(...)   CUTE_CALL(tensor_address_near(__VA_ARGS__))

/* cluster_allreduce.h */
#define make_cluster_allreduce(...)  CUTE_CALL(make_cluster_allreduce(__VA_ARGS__))
#define cluster_allreduce_init(...)  CUTE_CALL(cluster_allreduce_init(__VA_ARGS__))
#define cluster_allreduce_begin(...) CUTE_CALL(cluster_allreduce_begin(__VA_ARGS__))
#define cluster_allreduce_end(...)   CUTE_CALL(cluster_allreduce_end(__VA_ARGS__))

/* math.h */
#define exp_f32(...)        CUTE_CALL(exp_f32(__VA_ARGS__))
#define log_f32(...)        CUTE_CALL(log_f32(__VA_ARGS__))
#define log_half(...)       CUTE_CALL(log_half(__VA_ARGS__))
#define tanh_f32(...)       CUTE_CALL(tanh_f32(__VA_ARGS__))
#define sigmoid_f32(...)    CUTE_CALL(sigmoid_f32(__VA_ARGS__))
#define sigmoid_half(...)   CUTE_CALL(sigmoid_half(__VA_ARGS__))
#define erf_f32(...)        CUTE_CALL(erf_f32(__VA_ARGS__))
#define median_f32(...)     CUTE_CALL(median_f32(__VA_ARGS__))
#define normal_cdf_f32(...) CUTE_CALL(normal_cdf_f32(__VA_ARGS__))
#define pow_f32(...)        CUTE_CALL(pow_f32(__VA_ARGS__))
#define sincos_f32(...)     CUTE_CALL(sincos_f32(__VA_ARGS__))
#define silu_f32(...)       CUTE_CALL(silu_f32(__VA_ARGS__))
#define silu_half(...)      CUTE_CALL(silu_half(__VA_ARGS__))
#define gelu_erf_f32(...)   CUTE_CALL(gelu_erf_f32(__VA_ARGS__))
#define gelu_erf_half(...)  CUTE_CALL(gelu_erf_half(__VA_ARGS__))
#define gelu_tanh_f32(...)  CUTE_CALL(gelu_tanh_f32(__VA_ARGS__))

/* divisor.h */
#define divisor_quotient(...)   CUTE_CALL(divisor_quotient(__VA_ARGS__))
#define divisor_coordinate(...) CUTE_CALL(divisor_coordinate(__VA_ARGS__))
