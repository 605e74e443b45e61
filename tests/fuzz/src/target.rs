//! Targets of the fuzzer.

use crate::scratch::Scratch;

/// A parser or decoder with its seeds and promises.
pub struct Target {
    /// Its name on the command line, and the name of its folder of found inputs.
    pub name: &'static str,
    /// Accepted inputs from which mutations start. They are short and reach as much code as possible.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Words of its language, which mutations insert.
    pub words: &'static [&'static str],
    /// Repairs checksums, and the lengths that locate them, if an input has any.
    pub repair: fn(&mut [u8]),
    /// Decodes the input and returns the outcome: the error, or a few words about the accepted input. Panics if a
    /// promise is broken.
    pub run: fn(&Input) -> String,
    /// Bytes that it may allocate for any input.
    pub memory_base: usize,
    /// Additional bytes that it may allocate per byte of input.
    pub memory_per_byte: usize,
}

/// An input, in memory and for readers of files.
pub struct Input<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// A folder for files of readers.
    pub scratch: &'a Scratch,
}

impl<'a> Input<'a> {
    /// The first byte, which selects options, and the rest. An empty input selects 0.
    pub fn choice(&self) -> (u8, &'a [u8]) {
        self.bytes.split_first().map_or((0, &[]), |(&choice, rest)| (choice, rest))
    }
}

impl Target {
    /// Bytes that it may allocate for an input of this length.
    pub fn memory_max(&self, input_bytes: usize) -> usize {
        self.memory_base + self.memory_per_byte * input_bytes
    }
}

/// Leaves an input as it is, for targets without checksums.
pub fn no_repair(_: &mut [u8]) {}
