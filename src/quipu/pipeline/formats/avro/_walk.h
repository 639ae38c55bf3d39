/* Pieces of the Avro walk that are plainer in C: UTF-8, wide decimals, texts of ids and times. */

#ifndef QUIPU_AVRO_WALK_H
#define QUIPU_AVRO_WALK_H

#include <stdint.h>
#include <string.h>

/* Is this UTF-8, as Unicode has it: no overlong forms, no surrogates, nothing above 10FFFF? */
static inline int quipu_is_utf8(const uint8_t *p, int64_t size)
{
    const uint8_t *end = p + size;
    while (p < end) {
        if (end - p >= 8) {
            uint64_t word;
            memcpy(&word, p, 8);
            if (!(word & 0x8080808080808080ULL)) {
                p += 8;
                continue;
            }
        }
        uint8_t first = *p;
        int more;
        uint8_t least = 0x80, most = 0xBF;
        if (first < 0x80) {
            p++;
            continue;
        }
        if (first < 0xC2)
            return 0;
        if (first < 0xE0) {
            more = 1;
        } else if (first < 0xF0) {
            more = 2;
            if (first == 0xE0)
                least = 0xA0;
            else if (first == 0xED)
                most = 0x9F;
        } else if (first < 0xF5) {
            more = 3;
            if (first == 0xF0)
                least = 0x90;
            else if (first == 0xF4)
                most = 0x8F;
        } else {
            return 0;
        }
        if (end - p <= more || p[1] < least || p[1] > most)
            return 0;
        for (int i = 2; i <= more; i++)
            if ((p[i] & 0xC0) != 0x80)
                return 0;
        p += more + 1;
    }
    return 1;
}

/* A two's complement number, big end first, into 16 bytes, little end first, as Arrow has them.
   0 if it has more digits than the precision, which is at most 38. */
static inline int quipu_decimal(const uint8_t *p, int64_t size, int precision, uint8_t *out)
{
    uint8_t sign = size > 0 && (p[0] & 0x80) ? 0xFF : 0;
    while (size > 16) {
        if (*p != sign)
            return 0;
        p++;
        size--;
    }
    if (size == 16 && ((p[0] & 0x80) ? 0xFF : 0) != sign)
        return 0;
    unsigned __int128 number = sign ? ~(unsigned __int128)0 : 0;
    for (int64_t i = 0; i < size; i++)
        number = (number << 8) | p[i];
    unsigned __int128 magnitude = sign ? (unsigned __int128)0 - number : number;
    unsigned __int128 limit = 1;
    for (int i = 0; i < precision; i++)
        limit *= 10;
    if (magnitude >= limit)
        return 0;
    memcpy(out, &number, 16);
    return 1;
}

/* 16 bytes as the 36 characters of a UUID. */
static inline void quipu_uuid(const uint8_t *p, uint8_t *out)
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *out++ = '-';
        *out++ = (uint8_t)digits[p[i] >> 4];
        *out++ = (uint8_t)digits[p[i] & 15];
    }
}

static inline uint8_t *quipu_digits(uint8_t *out, int64_t number, int width)
{
    for (int i = width - 1; i >= 0; i--) {
        out[i] = (uint8_t)('0' + number % 10);
        number /= 10;
    }
    return out + width;
}

/* A time of day as text, with 3 or 6 digits of seconds; its size, or 0 if it is none. */
static inline int quipu_time(int64_t number, int width, uint8_t *out)
{
    int64_t unit = width == 3 ? 1000 : 1000000;
    if (number < 0 || number >= 86400 * unit)
        return 0;
    int64_t seconds = number / unit;
    out = quipu_digits(out, seconds / 3600, 2);
    *out++ = ':';
    out = quipu_digits(out, seconds / 60 % 60, 2);
    *out++ = ':';
    out = quipu_digits(out, seconds % 60, 2);
    *out++ = '.';
    quipu_digits(out, number % unit, width);
    return 9 + width;
}

#endif
