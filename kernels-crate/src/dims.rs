//! Sizes and offsets: every product is widened to 64 bits before it is taken.

/// `⌈n / d⌉` for `d > 0`.
#[inline(always)]
pub const fn ceil_div(n: u64, d: u64) -> u64 {
    n.div_ceil(d)
}

/// The least multiple of `to` that is at least `n`; `to > 0`.
#[inline(always)]
pub const fn align_up(n: u64, to: u64) -> u64 {
    ceil_div(n, to) * to
}

/// Element offset of `[row, column]` in a matrix with `stride` elements a row.
#[inline(always)]
pub const fn offset(row: u32, stride: u64, column: u32) -> u64 {
    row as u64 * stride + column as u64
}

/// Index of `[row, draw]` in an output `[B, S]`.
#[inline(always)]
pub const fn output_index(row: u32, draws: u32, draw: u32) -> u64 {
    row as u64 * draws as u64 + draw as u64
}

/// The first of `n` items, in ascending order of their ids, with an id from `least` on.
#[inline(always)]
pub fn first_from(n: u32, least: u32, id: impl Fn(u32) -> u32) -> u32 {
    let (mut from, mut to) = (0, n);
    while from < to {
        let middle = from + (to - from) / 2;
        if id(middle) < least {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    from
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_do_not_wrap_at_32_bits() {
        assert_eq!(offset(1 << 20, 1 << 16, 3), (1 << 36) + 3);
        assert_eq!(output_index(u32::MAX, 8, 7), 8 * (u32::MAX as u64) + 7);
    }

    #[test]
    fn rounding_is_exact_at_the_multiples() {
        assert_eq!((ceil_div(0, 8), ceil_div(8, 8), ceil_div(9, 8)), (0, 1, 2));
        assert_eq!((align_up(0, 16), align_up(16, 16), align_up(17, 16)), (0, 16, 32));
        assert_eq!(ceil_div(u64::MAX, 2), 1 << 63);
    }
}
