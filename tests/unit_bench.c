/* unit_bench.c - whole races of an operator and a peer whose times are ordered. */
#include "twice_operator.h"

TEST_BETWEEN(race_by_events, open_race, NULL)
{
    peer_slowness = 100;
    result_row row = race(5000, false);
    assert_string_equal(row.fault, "");
    assert_string_equal(row.line, "twice n=100");
    assert_string_equal(row.method, "events");
    assert_true(row.launches == 1 && row.sets > 2 && row.samples >= 20);
    assert_true(fabs(row.median_us - 5000) < 1e-6 && row.half_width < 1e-6);
    assert_true(row.event_us == 0 && row.chain_us == 0);
    assert_int_equal(row.peer_count, 2);
    const result_peer *best = result_find_peer(&row, "best"), *first = result_find_peer(&row, "first");
    assert_true(best && first && best->tried == 2);
    assert_string_equal(best->config, "variant 1");
    assert_true(fabs(best->ratio - 0.8) < 1e-6 && fabs(first->ratio - 1.2) < 1e-6);
}

TEST_BETWEEN(race_by_graphs, open_race, NULL)
{
    result_row row = race(3, true);
    assert_string_equal(row.method, "graphs");
    assert_string_equal(row.l2, "hot");
    assert_true(row.launches >= 64 && row.sets == 1 && fabs(row.median_us - 3) < 1e-6);
    assert_true(fabs(result_find_peer(&row, "best")->median_us - 40) < 1e-6);
    assert_true(fabs(row.event_us - 3) < 1e-6 && fabs(row.chain_us - 3 - APART_US) < 1e-6);
    assert_true(fabs(result_find_peer(&row, "best")->event_us - 40) < 1e-6);
    assert_false(overlap_forbidden);
}

/* Long launches make shorter graphs, in which every set of memory takes part as often. */
TEST_BETWEEN(graphs_of_long_launches, open_race, NULL)
{
    problem_size = 700;
    result_row row = race(400, false);
    assert_string_equal(row.method, "graphs");
    assert_true(row.launches < 20 && row.sets > 2 && row.launches % row.sets == 0 && fabs(row.median_us - 400) < 1e-6);
}

/* What was fast at a glance need not be: the ratio is to the fastest variant of the race itself. */
TEST_BETWEEN(best_is_the_fastest_measured, open_race, NULL)
{
    quick_runs = 9; // two at a glance, a check, and the probes of a race
    result_row row = race(50, false);
    const result_peer *best = result_find_peer(&row, "best"), *first = result_find_peer(&row, "first");
    assert_string_equal(best->config, "variant 1");
    assert_true(fabs(best->ratio - 0.8) < 1e-6 && fabs(first->ratio - 1.2) < 1e-6);
    peer_slowness = 0.01;
    quick_runs = 0;
    row = race(50, false);
    assert_true(row.peer_count == 2 && result_find_peer(&row, "best")->median_us < 1);
}

/* A library may take long for each way of its own: no time is so short that only the first of a few is looked at. */
TEST_BETWEEN(first_variants_are_always_tried, open_race, NULL)
{
    sampling_seconds = 1e-9;
    result_row row = race(50, false);
    const result_peer *best = result_find_peer(&row, "best");
    assert_true(best && best->tried == 2);
    assert_string_equal(best->config, "variant 1");
}

/* Of many variants, those that a brief race shows to be behind are not raced at length, but for the first. */
TEST_BETWEEN(variants_that_are_behind, open_race, NULL)
{
    variant_count = COUNT_OF(variant_us);
    result_row row = race(50, false);
    assert_int_equal(row.peer_count, 3);
    assert_int_equal(row.peers[0].tried, COUNT_OF(variant_us) - 1);
    for (int i = 0; i < row.peer_count; i++)
        assert_string_equal(row.peers[i].config, ((const char *[]){ "variant 1", "variant 4", "variant 0" })[i]);
}

/* A variant that gives up leaves the race; one that users get without searching takes the peer with it. */
TEST_BETWEEN(peers_that_give_up, open_race, NULL)
{
    uncapturable = 1;
    result_row row = race(50, false);
    assert_true(fabs(result_find_peer(&row, "best")->ratio - 1.2) < 1e-6 && row.peer_count == 2);
    assert_string_equal(row.note, "not in a capture");
    uncapturable = 0;
    row = race(50, false);
    assert_true(row.peer_count == 0 && fabs(row.median_us - 50) < 1e-6);
}

/* Between two uses of a set, others fill L2 twice; or it is overwritten. */
TEST_BETWEEN(rotation_is_cold, open_race, NULL)
{
    for (int64_t n = 100; n < 4000; n += 77) {
        twice_problem problem = { n };
        test_case c = { .test = &twice_test, .problem = &problem, .fields = "n=100" };
        check k = { 0 };
        rotation r = { 0 };
        int64_t bytes = 0;
        fields_default(line_key_table, &c.keys);
        assert_ok(check_open(&c, &device, NULL, &k));
        assert_ok(rotation_create(&k, false, &r));
        for (int i = 0; i < k.images.count; i++)
            bytes += round_up((int64_t)k.images.each[i].bytes, 256);
        assert_true((r.count - 1) * bytes >= 2 * device.info.l2_bytes);
        assert_false(r.flush);
        rotation_free(&r);
        check_close(&k);
    }
}

TEST_BETWEEN(wrong_results_are_not_timed, open_race, NULL)
{
    peer_is_wrong = true;
    result_row row = race(50, false);
    assert_true(row.median_us > 0 && !result_find_peer(&row, "best") && !result_find_peer(&row, "first"));
    assert_says(row.peers[0].fault, "y[slice 0, j 0] is");
    peer_is_wrong = false;
    peer_is_idle = true; // it must not find our result
    row = race(50, false);
    assert_true(!result_find_peer(&row, "best") && strstr(row.peers[0].fault, "100 of 100 elements"));
    own_is_wrong = true;
    row = race(50, false);
    assert_true(row.median_us == 0 && row.peer_count == 0 && *row.fault);
}

/* Whoever changed what the others read, nobody's time counts. */
TEST_BETWEEN(spoiled_inputs, open_race, NULL)
{
    peer_spoils = true;
    result_row row = race(50, false);
    assert_string_equal(row.fault, "a is an input but was written at element 7 of its memory");
    assert_true(row.median_us == 0 && row.peer_count == 0);
    peer_spoils = false;
    own_spoils = true;
    row = race(50, false);
    assert_string_equal(row.fault, "a is an input but was written at element 7 of its memory");
    assert_true(row.median_us == 0 && row.peer_count == 0);
}

RUN_TESTS(NULL, NULL)
