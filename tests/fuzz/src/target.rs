//! Targets of the fuzzer.

use grappa_formats::container::FileKind;

use crate::{
    repair::{container, container_of},
    scratch::Scratch,
};

/// A parser or decoder with its seeds and promises.
pub struct Target {
    /// Its name on the command line, and the name of its folder of found inputs.
    pub name: &'static str,
    /// Accepted inputs from which mutations start. They are short and reach as much code as possible.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Words of its language, which mutations insert.
    pub words: &'static [&'static str],
    /// Repairs checksums, and the lengths that locate them.
    pub repair: Repair,
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

/// How the checksums of an input are repaired.
#[derive(Clone, Copy)]
pub enum Repair {
    /// It has none.
    Nothing,
    /// It is a container file.
    Container,
    /// It is a container file of this kind.
    ContainerOf(FileKind),
    /// In another way.
    With(fn(&mut [u8])),
}

impl Repair {
    /// Repairs an input.
    pub fn apply(self, input: &mut [u8]) {
        match self {
            Self::Nothing => {}
            Self::Container => container(input),
            Self::ContainerOf(kind) => container_of(kind, input),
            Self::With(repair) => repair(input),
        }
    }
}
