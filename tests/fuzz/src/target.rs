//! What is fuzzed.

use crate::scratch::Scratch;

/// A parser or decoder, what it is started with, and what it promises.
pub struct Target {
    /// Its name on the command line, and of its folder of found inputs.
    pub name: &'static str,
    /// Inputs that it accepts, from which mutations start. They reach as much of the code as possible, and are short.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// What its language is made of, for mutations to insert.
    pub words: &'static [&'static str],
    /// Makes checksums and the lengths they lie at right again, where an input has any.
    pub repair: fn(&mut [u8]),
    /// Decodes the input and says what came of it: the error, or a few words on what was accepted. Panics if a promise
    /// is broken.
    pub run: fn(&Input) -> String,
    /// Bytes that any input may make it allocate.
    pub memory_base: usize,
    /// Bytes that each byte of input may make it allocate beyond that.
    pub memory_per_byte: usize,
}

/// An input, and where readers of files find it.
pub struct Input<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// A folder for the files that readers want.
    pub scratch: &'a Scratch,
}

impl<'a> Input<'a> {
    /// The first byte, which chooses among options, and the rest. An empty input chooses 0.
    pub fn choice(&self) -> (u8, &'a [u8]) {
        self.bytes
            .split_first()
            .map_or((0, &[]), |(&choice, rest)| (choice, rest))
    }
}

impl Target {
    /// What an input of so many bytes may make it allocate.
    pub fn memory_max(&self, input_bytes: usize) -> usize {
        self.memory_base + self.memory_per_byte * input_bytes
    }
}

/// Leaves an input as it is: for targets without checksums.
pub fn no_repair(_: &mut [u8]) {}
