//! Helpers that several tests share.

use std::{
    fs,
    panic::Location,
    path::PathBuf,
    process::{Command, Output},
    sync::Arc,
};

use grappa_io::{
    Result,
    read::{self, Choice, FileIndex, Options, Read, ReadEngine, ReadFile},
};

/// The engines with their options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    UringDirect,
    UringBuffered,
    Pread,
}

pub const KINDS: [Kind; 3] = [Kind::UringDirect, Kind::UringBuffered, Kind::Pread];

/// Files with known bytes.
pub struct Files {
    pub contents: Vec<Vec<u8>>,
    pub paths: Vec<PathBuf>,
    /// Removed with the files when this is dropped.
    _folder: tempfile::TempDir,
}

impl Files {
    /// Files of these lengths, whose bytes are different everywhere.
    pub fn with_lengths(lengths: &[usize]) -> Self {
        Self::at(tempfile::tempdir().unwrap(), lengths)
    }

    pub fn at(folder: tempfile::TempDir, lengths: &[usize]) -> Self {
        let mut random = Random(lengths.len() as u64);
        let contents: Vec<Vec<u8>> =
            lengths.iter().map(|&length| (0..length).map(|_| random.next() as u8).collect()).collect();
        let paths: Vec<_> = (0..lengths.len()).map(|n| folder.path().join(format!("file-{n}"))).collect();
        for (path, bytes) in paths.iter().zip(&contents) {
            fs::write(path, bytes).unwrap();
        }
        Self { contents, paths, _folder: folder }
    }

    pub fn list(&self) -> Arc<[ReadFile]> {
        let open = |path: &PathBuf| ReadFile::open(path, None).unwrap();
        self.paths.iter().map(open).collect()
    }

    /// An engine that reads the files. None if the machine refuses it; then a part of the test is skipped.
    pub fn engine(&self, kind: Kind, options: Options) -> Option<Box<dyn ReadEngine>> {
        match self.try_engine(kind, options) {
            Ok(engine) => Some(engine),
            Err(why) => {
                grappa_skip::skip_part!("{kind:?}: {why}");
                None
            }
        }
    }

    /// An engine that reads the files. An error says why the machine refuses it.
    pub fn try_engine(&self, kind: Kind, options: Options) -> std::result::Result<Box<dyn ReadEngine>, String> {
        let engine = match kind {
            Kind::Pread => read::open(Choice::Pread, self.list(), options),
            Kind::UringDirect => read::open(Choice::Uring, self.list(), options),
            Kind::UringBuffered => {
                let direct = false;
                read::open(Choice::Uring, self.list(), Options { direct, ..options })
            }
        };
        match engine {
            Ok(engine) => Ok(engine),
            Err(error) if error.to_string().starts_with("io_uring is refused") => Err(error.to_string()),
            Err(error) => panic!("{kind:?}: {error}"),
        }
    }

    /// Random reads of 1 to `length_max` bytes. One in eight ends at the end of its file.
    pub fn reads(&self, count: usize, length_max: u32, seed: u64) -> Vec<Read> {
        let mut random = Random(seed);
        (0..count as u64)
            .map(|tag| {
                let file = random.below(self.contents.len() as u64) as u32;
                let bytes = self.contents[file as usize].len() as u64;
                let length = 1 + random.below(u64::from(length_max).min(bytes));
                let last = bytes - length;
                let offset = if random.below(8) == 0 { last } else { random.below(last + 1) };
                Read { file: FileIndex(file), offset, length: length as u32, tag }
            })
            .collect()
    }

    pub fn wanted(&self, read: &Read) -> &[u8] {
        let offset = read.offset as usize;
        &self.contents[read.file.0 as usize][offset..offset + read.length as usize]
    }

    /// Performs `reads`. Panics if the bytes differ from the files, or a read is not completed exactly once.
    #[track_caller]
    pub fn check(&self, engine: &mut dyn ReadEngine, reads: &[Read]) {
        self.try_check(engine, reads).unwrap_or_else(|error| panic!("at {}: {error}", Location::caller()));
    }

    /// Like [`Files::check`], but stops at an error.
    pub fn try_check(&self, engine: &mut dyn ReadEngine, reads: &[Read]) -> Result<()> {
        let mut shown = vec![false; reads.len()];
        let mut submitted = 0;
        let mut left = reads;
        while !left.is_empty() || engine.in_flight() > 0 {
            let count = engine.submit(left)?;
            left = &left[count..];
            submitted += count;
            assert!(engine.in_flight() <= engine.options().depth);
            let mut seen = 0;
            let completed = engine.complete(&mut |read, bytes| {
                seen += 1;
                assert_eq!(*read, reads[read.tag as usize]);
                assert!(bytes == self.wanted(read), "the bytes of {read:?}");
                assert!(!std::mem::replace(&mut shown[read.tag as usize], true), "{read:?} once");
            })?;
            assert_eq!(completed, seen);
            assert!(completed > 0, "completion is waited for");
        }
        assert_eq!(submitted, reads.len());
        assert!(shown.iter().all(|&shown| shown));
        Ok(())
    }
}

/// A linear congruential generator, which is enough for different bytes.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// Runs `body` in a separate process, whose limits it may change. It starts the test `name` again, which comes to this call
/// again. `variables` are numbers in the environment of the process. Returns its output, with the engine's log.
pub fn in_child(name: &str, variables: &[(&str, i32)], body: impl FnOnce()) -> Option<Output> {
    const VARIABLE: &str = "GRAPPA_TEST_CHILD";
    if std::env::var_os(VARIABLE).is_some_and(|test| test == name) {
        tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
        body();
        return None;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(VARIABLE, name)
        .envs(variables.iter().map(|(name, value)| (name, value.to_string())))
        .output()
        .unwrap();
    Some(output)
}

/// The output of a child that succeeded.
pub fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}\n{text}\n{}", output.status, String::from_utf8_lossy(&output.stdout));
    text
}
