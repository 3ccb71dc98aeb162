# Turns the bytes of blocks (one decimal number a line) into blocks that are each followed by a PI tuple, in hex.
# Variables: bs (bytes a block), app (application tag), ref (reference tag of the first block, up to 32 bits), flip (XORed into the guard's
# last 16 bits), step (what the reference tag grows by a block), bits (of the guard: 16, or 64 with a tuple of 16 bytes).
# An implementation of its own, bit by bit from the CRCs' definitions, so that it can judge the target's.
BEGIN {
    for (i = 0; i < 256; i++) {
        crc = lshift(i, 8)
        for (bit = 0; bit < 8; bit++)
            crc = and(crc, 32768) ? xor(and(lshift(crc, 1), 65535), 35767) : and(lshift(crc, 1), 65535)  # 0x8BB7
        table[i] = crc
        # Lowest bits first, 0x9A6C9329AC4BC9B5: in halves, for a number of awk has 53 bits.
        low = i
        high = 0
        for (bit = 0; bit < 8; bit++) {
            odd = and(low, 1)
            low = or(rshift(low, 1), lshift(and(high, 1), 31))
            high = rshift(high, 1)
            if (odd) { high = xor(high, 2590806825); low = xor(low, 2890647989) }
        }
        table_low[i] = low
        table_high[i] = high
        hex[i] = sprintf("%02x", i)
    }
    begin()
    line = ""
}
function begin() {
    guard = 0
    guard_low = guard_high = 4294967295
}
{
    if (bits == 64) {
        i = xor(and(guard_low, 255), $1)
        guard_low = xor(or(rshift(guard_low, 8), lshift(and(guard_high, 255), 24)), table_low[i])
        guard_high = xor(rshift(guard_high, 8), table_high[i])
    } else
        guard = xor(and(lshift(guard, 8), 65535), table[xor(rshift(guard, 8), $1)])
    line = line hex[$1]
    if (NR % 64 == 0) { print line; line = "" }
    if (NR % bs == 0) {
        if (bits == 64) {
            high = xor(guard_high, 4294967295)
            low = xor(xor(guard_low, 4294967295), flip)
            printf "%s%04x%04x%04x%04x%04x%04x", line, rshift(high, 16), and(high, 65535), rshift(low, 16), and(low, 65535), app, 0
        } else
            printf "%s%04x%04x", line, xor(guard, flip), app
        # A format for numbers takes no more than 31 bits.
        printf "%04x%04x\n", rshift(ref, 16), and(ref, 65535)
        line = ""
        begin()
        ref += step
    }
}
