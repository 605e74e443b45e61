//! Reproducible random numbers: SplitMix64 by sequence or by counter, and unbiased bounded draws.
//!
//! Generated graphs, node permutations, minibatches and training runs are functions of their seeds, so no function here
//! may ever return other numbers. All arithmetic is on integers and gives the same results on every machine.
//!
//! [`mix`] is the finalizer of SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators",
//! OOPSLA 2014, section 5). It costs two multiplications and needs no state, so draws can be made by counter: draw `i`
//! does not depend on which draws were made before, or on which thread. None of this is for cryptography.

/// 2^64 divided by the golden ratio, made odd. It is SplitMix64's default distance between states, and a good factor
/// for multiplicative hashing.
pub const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finalizer of SplitMix64 (variant 13 of Stafford's "Better Bit Mixing"): a bijection of `u64` after which each
/// bit depends on all bits of `z`. `mix(0)` is 0; [`hash`] has no such fixed point.
#[inline(always)]
pub const fn mix(mut z: u64) -> u64 {
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// The first draw of SplitMix64 from the seed `key`: a bijection, used as a hash of integers.
#[inline(always)]
pub const fn hash(key: u64) -> u64 {
    mix(key.wrapping_add(GOLDEN))
}

/// Draw `counter` under `key`: uniform over all `u64`, and different for different counters.
///
/// Counter 0 gives `mix(key)`, and counter `i + 1` gives draw `i` of the sequence [`SplitMix64::new`]`(key)`.
///
/// ```
/// use grappa_formats::random::{combine, draw_at};
///
/// let key = combine(7, 3); // of run 7 and epoch 3
/// assert_eq!(draw_at(key, 5), draw_at(key, 5));
/// assert_ne!(draw_at(key, 5), draw_at(key, 6));
/// ```
#[inline(always)]
pub const fn draw_at(key: u64, counter: u64) -> u64 {
    mix(key.wrapping_add(counter.wrapping_mul(GOLDEN)))
}

/// A key made from `key` and one more `part`. Keys with several parts are made by folding this over them.
#[inline(always)]
pub const fn combine(key: u64, part: u64) -> u64 {
    mix(key.wrapping_add(GOLDEN) ^ part)
}

/// Scales a uniform number to `0..end` with one multiplication.
///
/// The probability of each result is off by less than `end` / 2^64 of itself. Use this where each result must take
/// exactly one draw, and [`below`] elsewhere.
///
/// ```
/// use grappa_formats::random::scale;
///
/// assert_eq!((scale(0, 10), scale(u64::MAX / 2, 10), scale(u64::MAX, 10)), (0, 4, 9));
/// ```
#[inline(always)]
pub fn scale(uniform: u64, end: u64) -> u64 {
    ((u128::from(uniform) * u128::from(end)) >> 64) as u64
}

/// An unbiased number in `0..end`, from as many numbers of `draw` as that takes: nearly always one, and fewer than two
/// on average. (Lemire, "Fast Random Integer Generation in an Interval", 2019, algorithm 5.)
///
/// `end` must not be 0.
#[inline(always)]
pub fn below(end: u64, mut draw: impl FnMut() -> u64) -> u64 {
    let product = u128::from(draw()) * u128::from(end);
    // 2^64 is no multiple of `end`, so 2^64 % end of the products are surplus. They have a low half below 2^64 % end,
    // which is below `end`. This comparison avoids the division unless a surplus is possible.
    if (product as u64) < end {
        return below_exactly(end, product, draw);
    }
    (product >> 64) as u64
}

/// Rejects products with a surplus low half. Apart from [`below`] so that callers inline the common case only.
#[cold]
fn below_exactly(end: u64, mut product: u128, mut draw: impl FnMut() -> u64) -> u64 {
    let surplus = end.wrapping_neg() % end;
    while (product as u64) < surplus {
        product = u128::from(draw()) * u128::from(end);
    }
    (product >> 64) as u64
}

/// The SplitMix64 generator: a sequence of 2^64 numbers without repetition.
///
/// ```
/// use grappa_formats::random::{SplitMix64, below, draw_at};
///
/// let mut random = SplitMix64::new(42);
/// let first = random.draw();
/// assert_eq!(first, draw_at(42, 1)); // the same draw by counter
/// let die = 1 + below(6, || random.draw());
/// assert!((1..=6).contains(&die));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// The sequence that starts from `seed`.
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next number, uniform over all `u64`.
    #[inline(always)]
    pub const fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        mix(self.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_that_of_the_reference() {
        // From splitmix64.c by Sebastiano Vigna (2015), seed 1234567.
        let mut random = SplitMix64::new(1_234_567);
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!([(); 5].map(|()| random.draw()), expected);
        for (i, expected) in expected.into_iter().enumerate() {
            assert_eq!(draw_at(1_234_567, i as u64 + 1), expected);
        }
        assert_eq!(hash(1_234_567), expected[0]);
    }

    #[test]
    fn bounded_draws_reject_exactly_the_surplus() {
        // With `end` = 3 * 2^62, 2^62 of the 2^64 numbers are surplus: those whose product has a low half below 2^62.
        let end = 3 << 62;
        for first in [0, 1, 2, 3, 4, 5, u64::MAX - 1, u64::MAX] {
            let is_surplus = first.wrapping_mul(end) < 1 << 62;
            let mut numbers = [first, 7].into_iter();
            let result = below(end, || numbers.next().expect("at most one number is rejected"));
            assert_eq!(result, scale(if is_surplus { 7 } else { first }, end), "{first}");
            assert_eq!(numbers.len(), usize::from(!is_surplus), "{first}");
        }
    }
}
