//! Radix sort of ids in memory. It sorts edges by destination and source.
//!
//! Keys are u64 below 2^`significant_bits`; bits that are never set cost nothing. Edge weights are moved along in a
//! separate array, so unweighted edges do not pay for them.
//!
//! ```text
//! sort(keys, bits):
//!     few keys:            compare
//!     fit the inner cache: scatter by digit, least significant digit first
//!     else:                scatter by the leading digit into parts that fit the inner cache, sort each by the bits below
//! ```
//!
//! Only the outermost scatter leaves the cache, and it uses only as many parts as needed to make each fit. A 40-bit key
//! costs about 3.5 to 5 ns, from a thousand keys to four million (the standard library's unstable sort: 7 to 13 ns),
//! and 5 to 9 ns with a payload. Uneven distributions cost no more: a digit that is equal in all keys is skipped. The
//! sort needs scratch space as large as the input, which callers keep between calls.

/// Maximum keys of a part that is sorted least significant digit first. With scratch, it fits a 1 MiB second-level
/// cache.
const INNER_MAX: usize = 1 << 15;
/// Target keys of a part of the outer scatter. Smaller parts would make it write to more places at a time.
const INNER_WANTED: usize = 1 << 12;
/// Maximum width of a digit, in bits. Its 2048 places stay in the first-level cache.
const DIGIT_MAX: u32 = 11;

/// One place in the output for each value of a digit.
type Places = [usize; 1 << DIGIT_MAX];

/// Sorts `keys`, all below 2^`significant_bits`. `scratch` grows to the same length and keeps its capacity; its content
/// is lost.
///
/// # Panics
/// If `significant_bits` is above 64. In debug builds, if a key is too large; in release builds the order is then
/// unspecified.
pub fn sort_keys(keys: &mut [u64], scratch: &mut Vec<u64>, significant_bits: u32) {
    check(keys, significant_bits);
    let n = keys.len();
    scratch.resize(n, 0);
    let from = Lanes { keys, payload: &mut vec![(); n] };
    let to = Lanes { keys: scratch, payload: &mut vec![(); n] };
    sort(from, to, significant_bits, false);
}

/// Sorts `keys` as [`sort_keys`] does, and moves each key's payload with it. Equal keys are sorted by payload, so the
/// result does not depend on the order of the input.
///
/// # Panics
/// As [`sort_keys`], or if there are not as many payloads as keys.
pub fn sort_pairs(
    keys: &mut [u64],
    payload: &mut [u32],
    keys_scratch: &mut Vec<u64>,
    payload_scratch: &mut Vec<u32>,
    significant_bits: u32,
) {
    check(keys, significant_bits);
    let n = keys.len();
    assert_eq!(payload.len(), n, "a payload for each key");
    keys_scratch.resize(n, 0);
    payload_scratch.resize(n, 0);
    let from = Lanes { keys, payload };
    let to = Lanes { keys: keys_scratch, payload: payload_scratch };
    sort(from, to, significant_bits, false);
}

/// Number of low bits that the ids below `end` need.
pub fn bits_for(end: u64) -> u32 {
    64 - end.saturating_sub(1).leading_zeros()
}

fn check(keys: &[u64], significant_bits: u32) {
    assert!(significant_bits <= 64, "a u64 has no {significant_bits} bits");
    debug_assert!(
        significant_bits == 64 || keys.iter().all(|key| key >> significant_bits == 0),
        "a key does not fit {significant_bits} bits"
    );
}

/// A value that is moved along with each key.
trait Payload: Copy + Ord {
    /// Up to this many keys are sorted by comparison: clearing and summing a digit's counters would cost more.
    const FEW: usize;

    /// Sorts a few keys.
    fn sort_few(lanes: Lanes<'_, Self>);
}

/// No payload: takes no space and no time.
impl Payload for () {
    const FEW: usize = 160;

    fn sort_few(lanes: Lanes<'_, Self>) {
        lanes.keys.sort_unstable();
    }
}

impl Payload for u32 {
    const FEW: usize = 24;

    fn sort_few(lanes: Lanes<'_, Self>) {
        let Lanes { keys, payload } = lanes;
        for i in 1..keys.len() {
            let moved = (keys[i], payload[i]);
            let mut at = i;
            while at > 0 && (keys[at - 1], payload[at - 1]) > moved {
                (keys[at], payload[at]) = (keys[at - 1], payload[at - 1]);
                at -= 1;
            }
            (keys[at], payload[at]) = moved;
        }
    }
}

/// Keys and their payloads: two slices of one length.
struct Lanes<'a, P> {
    keys: &'a mut [u64],
    payload: &'a mut [P],
}

impl<P: Payload> Lanes<'_, P> {
    fn len(&self) -> usize {
        self.keys.len()
    }

    fn part(&mut self, start: usize, end: usize) -> Lanes<'_, P> {
        Lanes { keys: &mut self.keys[start..end], payload: &mut self.payload[start..end] }
    }

    fn copy_from(&mut self, other: &Self) {
        self.keys.copy_from_slice(other.keys);
        self.payload.copy_from_slice(other.payload);
    }
}

/// Sorts the keys in `here`. They end up in `there`, which is equally long, if `to_there`, and else in `here`.
fn sort<'a, P: Payload>(here: Lanes<'a, P>, mut there: Lanes<'a, P>, bits: u32, to_there: bool) {
    let n = here.len();
    if n <= P::FEW {
        if to_there {
            there.copy_from(&here);
        }
        P::sort_few(if to_there { there } else { here });
    } else if n <= INNER_MAX || bits == 0 {
        sort_inner(here, there, bits, to_there);
    } else {
        sort_outer(here, there, bits, to_there);
    }
}

/// Scatters by the leading digit from `here` to `there`, then sorts each part on its own.
fn sort_outer<P: Payload>(mut here: Lanes<'_, P>, mut there: Lanes<'_, P>, bits: u32, to_there: bool) {
    let digit = (here.len() / INNER_WANTED).ilog2().min(DIGIT_MAX).min(bits);
    let shift = bits - digit;
    let mut places: Places = [0; 1 << DIGIT_MAX];
    if !find_places(here.keys, &mut places, shift, digit) {
        return sort(here, there, shift, to_there);
    }
    scatter(&here, &mut there, &mut places, shift, digit);
    let mut start = 0;
    for &end in &places[..1 << digit] {
        if end > start {
            sort(there.part(start, end), here.part(start, end), shift, !to_there);
        }
        start = end;
    }
}

/// Sorts by all `bits`, least significant digit first, moving between the two buffers.
fn sort_inner<'a, P: Payload>(mut here: Lanes<'a, P>, mut there: Lanes<'a, P>, bits: u32, to_there: bool) {
    // More places than keys: clearing and summing them would cost more than they save.
    let widest = (here.len().ilog2() + 1).min(DIGIT_MAX);
    let passes = bits.div_ceil(widest);
    let mut places: Places = [0; 1 << DIGIT_MAX];
    let mut shift = 0;
    // Each move swaps the names, so the keys are always here.
    let mut is_wanted_there = to_there;
    for pass in 0..passes {
        let digit = (bits - shift).div_ceil(passes - pass);
        if find_places(here.keys, &mut places, shift, digit) {
            scatter(&here, &mut there, &mut places, shift, digit);
            std::mem::swap(&mut here, &mut there);
            is_wanted_there = !is_wanted_there;
        }
        shift += digit;
    }
    if is_wanted_there {
        there.copy_from(&here);
        here = there;
    }
    order_payloads(&mut here);
}

/// Computes the output place for each value of a digit. False if all keys have the same digit: then no key moves.
#[inline]
fn find_places(keys: &[u64], places: &mut Places, shift: u32, digit: u32) -> bool {
    let used = &mut places[..1 << digit];
    used.fill(0);
    for &key in keys {
        places[digit_of(key, shift, digit)] += 1;
    }
    if places[digit_of(keys[0], shift, digit)] == keys.len() {
        return false;
    }
    let mut start = 0;
    for place in &mut places[..1 << digit] {
        start += std::mem::replace(place, start);
    }
    true
}

/// Moves each key to the place of its digit, and advances the place. Afterwards each place is the end of its part.
#[inline]
fn scatter<P: Payload>(from: &Lanes<'_, P>, to: &mut Lanes<'_, P>, places: &mut Places, shift: u32, digit: u32) {
    for (&key, &payload) in from.keys.iter().zip(&*from.payload) {
        let place = &mut places[digit_of(key, shift, digit)];
        to.keys[*place] = key;
        to.payload[*place] = payload;
        *place += 1;
    }
}

/// The `digit` bits above `shift`. The second mask does not change the value. It lets the compiler drop the bounds
/// check.
#[inline(always)]
fn digit_of(key: u64, shift: u32, digit: u32) -> usize {
    (key >> shift) as usize & ((1 << digit) - 1) & ((1 << DIGIT_MAX) - 1)
}

/// Orders the payloads of equal keys, which are next to each other by now.
fn order_payloads<P: Payload>(lanes: &mut Lanes<'_, P>) {
    if size_of::<P>() == 0 {
        return;
    }
    let mut start = 0;
    for run in lanes.keys.chunk_by(|a, b| a == b) {
        if run.len() > 1 {
            lanes.payload[start..start + run.len()].sort_unstable();
        }
        start += run.len();
    }
}

#[cfg(test)]
mod tests {
    use grappa_formats::random::GOLDEN;
    use proptest::prelude::*;

    use super::*;

    /// Sorts by both functions and by the standard library.
    fn check_against_std(keys: &[u64], payload: &[u32], bits: u32) {
        let mut expected = keys.to_vec();
        expected.sort_unstable();
        let mut sorted = keys.to_vec();
        sort_keys(&mut sorted, &mut vec![7; 3], bits);
        assert!(sorted == expected, "{} keys of {bits} bits", keys.len());

        let mut expected: Vec<_> = keys.iter().copied().zip(payload.iter().copied()).collect();
        expected.sort_unstable();
        let (mut keys, mut payload) = (keys.to_vec(), payload.to_vec());
        sort_pairs(&mut keys, &mut payload, &mut Vec::new(), &mut vec![7; 3], bits);
        assert!(keys.iter().copied().zip(payload.iter().copied()).eq(expected), "{} pairs of {bits} bits", keys.len());
    }

    /// `n` keys of `bits` bits; the higher the `skew`, the more of them are small, and the more are equal.
    fn keys_like(n: usize, bits: u32, skew: u32, seed: u64) -> (Vec<u64>, Vec<u32>) {
        let mut state = seed;
        let mut draw = || {
            state = state.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
            (state ^ state >> 32).wrapping_mul(GOLDEN)
        };
        (0..n)
            .map(|_| {
                let zeros = (0..skew).map(|_| draw() >> 58).min().unwrap_or(0);
                let key = draw().checked_shr((64 - bits).max(zeros as u32)).unwrap_or(0);
                (key, (draw() >> 61) as u32)
            })
            .unzip()
    }

    proptest! {
        #[test]
        fn few_keys_sort_as_the_standard_library_sorts(
            n in 0usize..400, bits in 0u32..=64, skew in 0u32..3, seed: u64,
        ) {
            let (keys, payload) = keys_like(n, bits, skew, seed);
            check_against_std(&keys, &payload, bits);
        }
    }

    #[test]
    fn many_keys_of_any_distribution_sort_as_the_standard_library_sorts() {
        for n in [INNER_MAX - 1, INNER_MAX, INNER_MAX + 1, 300_000] {
            for (bits, skew) in [(0, 0), (1, 0), (5, 1), (12, 0), (13, 2), (24, 1), (40, 0), (40, 3), (64, 0), (64, 1)]
            {
                let (keys, payload) = keys_like(n, bits, skew, n as u64);
                check_against_std(&keys, &payload, bits);
            }
        }
    }

    #[test]
    fn keys_that_share_their_leading_or_trailing_bits_sort() {
        let (keys, payload) = keys_like(100_000, 10, 0, 1);
        let leading: Vec<u64> = keys.iter().map(|key| key | 0xab_cdef << 16).collect();
        check_against_std(&leading, &payload, 40);
        let trailing: Vec<u64> = keys.iter().map(|key| key << 30 | 0x1234).collect();
        check_against_std(&trailing, &payload, 40);
        let mut falling: Vec<u64> = (0..100_000).rev().collect();
        check_against_std(&falling, &payload, 17);
        falling.reverse();
        check_against_std(&falling, &payload, 17);
    }

    #[test]
    fn the_bits_of_ids_are_counted() {
        assert_eq!([0, 1, 2, 3, 4, 5, 1 << 40, (1 << 40) + 1].map(bits_for), [0, 0, 1, 2, 2, 3, 40, 41]);
    }

    #[test]
    #[should_panic(expected = "a payload for each key")]
    fn a_missing_payload_is_a_mistake() {
        sort_pairs(&mut [1, 2], &mut [1], &mut Vec::new(), &mut Vec::new(), 2);
    }
}
