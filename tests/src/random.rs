//! Random numbers that are the same in every run.

use grappa_formats::random::SplitMix64;

/// A sequence of random numbers for tests.
#[derive(Debug, Clone)]
pub struct Random(SplitMix64);

impl Random {
    /// Each seed has its own sequence.
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0.draw()
    }

    /// A number below `end`. The bias is `end` / 2^64, too small to matter in tests.
    pub fn below(&mut self, end: u64) -> u64 {
        self.draw() % end
    }

    /// A number in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1u64 << 53) as f64
    }
}
