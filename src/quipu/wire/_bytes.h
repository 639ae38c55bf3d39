/* Big-endian numbers and CRC-32C, for the compiled helpers.  Callers see to the bounds. */
#ifndef QUIPU_BYTES_H
#define QUIPU_BYTES_H

#include <stdint.h>
#include <string.h>

static inline uint16_t quipu_u16(const uint8_t *p) {
    return (uint16_t)((p[0] << 8) | p[1]);
}
static inline uint32_t quipu_u32(const uint8_t *p) {
    return ((uint32_t)quipu_u16(p) << 16) | quipu_u16(p + 2);
}
static inline uint64_t quipu_u64(const uint8_t *p) {
    return ((uint64_t)quipu_u32(p) << 32) | quipu_u32(p + 4);
}
static inline void quipu_put16(uint8_t *p, uint16_t value) {
    p[0] = (uint8_t)(value >> 8); p[1] = (uint8_t)value;
}
static inline void quipu_put32(uint8_t *p, uint32_t value) {
    p[0] = (uint8_t)(value >> 24); p[1] = (uint8_t)(value >> 16);
    p[2] = (uint8_t)(value >> 8); p[3] = (uint8_t)value;
}
static inline void quipu_put64(uint8_t *p, uint64_t value) {
    quipu_put32(p, (uint32_t)(value >> 32));
    quipu_put32(p + 4, (uint32_t)value);
}

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <nmmintrin.h>
static inline int quipu_has_crc(void) {
    return __builtin_cpu_supports("sse4.2");
}
__attribute__((target("sse4.2")))
static inline uint32_t quipu_crc(uint32_t crc, const uint8_t *p, size_t size) {
    uint64_t state = ~crc;
    for (; size >= 8; p += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        state = _mm_crc32_u64(state, word);
    }
    for (; size > 0; p++, size--)
        state = _mm_crc32_u8((uint32_t)state, *p);
    return ~(uint32_t)state;
}
#else
static inline int quipu_has_crc(void) { return 0; }
static inline uint32_t quipu_crc(uint32_t crc, const uint8_t *p, size_t size) { return 0; }
#endif

#endif
