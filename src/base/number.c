/* number.c - parsing numbers. */
#include "base/number.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

static bool integer_power(int64_t base, int64_t exponent, int64_t *power)
{
    *power = 1;
    for (int64_t i = 0; i < exponent; i++)
        if (__builtin_mul_overflow(*power, base, power))
            return false;
    return exponent >= 0;
}

/* "12", "-12" or "2^20". */
static bool parse_term(const char **at, int64_t *value)
{
    char *end;
    errno = 0;
    *value = strtoll(*at, &end, 10);
    if (end == *at || errno || isspace((unsigned char)**at))
        return false;
    *at = end;
    if (*end != '^')
        return true;
    const char *from = end + 1;
    long long exponent = strtoll(from, &end, 10);
    *at = end;
    return end != from && exponent <= 62 && integer_power(*value, exponent, value);
}

bool number_integer(const char **at, int64_t *value)
{
    const char *now = *at;
    int64_t sum = 0;
    do {
        int64_t term;
        if (!parse_term(&now, &term) || __builtin_add_overflow(sum, term, &sum))
            return false;
    } while (*now == '+' || *now == '-');
    *at = now;
    *value = sum;
    return true;
}

bool number_float(const char **at, float *value)
{
    char *end;
    errno = 0;
    float x = strtof(*at, &end);
    if (end == *at || (errno == ERANGE && isinf(x)))
        return false;
    if (*end == '^') {
        const char *from = end + 1;
        double power = pow((double)x, (double)strtol(from, &end, 10));
        if (end == from || fabs(power) > 0x1.fffffep127)
            return false;
        x = (float)power;
    }
    *at = end;
    *value = x;
    return true;
}
