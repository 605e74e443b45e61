//! State machine of one read: the next request to the kernel, and the handling of its answer.
//!
//! ```text
//!              offset          offset + length
//! file  ...|......[####################].....|...      | multiples of the alignment
//!        start                              end
//! buffer   0 ........ filled ............. span
//! ```
//!
//! The first request is for `start..end`. After a short answer, the next request starts at the last multiple of the
//! alignment that was reached. This repeats until all wanted bytes are read, or the file turns out to end: an answer
//! has 0 bytes, or direct reads end within the same block repeatedly.

use std::{io, ops::Range, time::Duration};

use rustix::io::Errno;

use super::request::Read;

/// Answers without progress in a row before a read fails. After the first [`STALLS_AT_ONCE`], requests are a
/// millisecond apart.
const STALLS_MAX: u32 = 1000;
const STALLS_AT_ONCE: u32 = 16;
/// Answers in a row that end at the same byte within a block before the read treats it as the end of the file.
const SAME_ENDS_MAX: u32 = 16;

/// A read that is not complete.
#[derive(Debug, Clone)]
pub(super) struct Transfer {
    pub(super) read: Read,
    align: u32,
    /// Bytes from `start` on that are in the buffer: a multiple of the alignment.
    filled: u32,
    /// Answers without progress in a row.
    stalls: u32,
    /// End in the buffer of the last answer without progress, and the number of such answers in a row with this end.
    same_end: (usize, u32),
}

impl Transfer {
    /// Begins a read that lies within the first 2^63 bytes of a file. `align` is a power of two.
    pub(super) fn new(read: Read, align: u32) -> Self {
        Self { read, align, filled: 0, stalls: 0, same_end: (0, 0) }
    }

    /// Buffer bytes that any read of at most `read_bytes_max` bytes needs, at any offset.
    pub(super) fn span_max(read_bytes_max: u32, align: u32) -> usize {
        (read_bytes_max as usize).next_multiple_of(align as usize) + if align > 1 { align as usize } else { 0 }
    }

    /// Offset in the file at which the buffer begins.
    fn start(&self) -> u64 {
        self.read.offset - self.read.offset % u64::from(self.align)
    }

    /// Buffer bytes that the read needs.
    pub(super) fn span(&self) -> usize {
        let end = (self.read.offset + u64::from(self.read.length)).next_multiple_of(u64::from(self.align));
        (end - self.start()) as usize
    }

    /// The next request: the offset in the file, and the part of the buffer.
    pub(super) fn next(&self) -> (u64, Range<usize>) {
        (self.start() + u64::from(self.filled), self.filled as usize..self.span())
    }

    /// Range of the wanted bytes in the buffer.
    pub(super) fn requested(&self) -> Range<usize> {
        let begin = (self.read.offset - self.start()) as usize;
        begin..begin + self.read.length as usize
    }

    /// Handles the kernel's answer to the request of [`Transfer::next`]: the number of bytes read. Returns whether all wanted bytes are in
    /// the buffer. Sleeps if there was no progress for some time.
    pub(super) fn advance(&mut self, answer: io::Result<usize>) -> io::Result<bool> {
        let refused = match answer {
            Ok(count) => {
                let reached = self.filled as usize + count;
                if reached >= self.requested().end {
                    return Ok(true);
                }
                let aligned = reached as u32 - reached as u32 % self.align;
                if aligned > self.filled {
                    self.filled = aligned;
                    self.stalls = 0;
                    return Ok(false);
                }
                let times = if self.same_end.0 == reached { self.same_end.1 + 1 } else { 1 };
                self.same_end = (reached, times);
                let found = reached.saturating_sub(self.requested().start);
                if count == 0 || times >= SAME_ENDS_MAX {
                    return Err(ended(&self.read, found as u64));
                }
                None
            }
            Err(error) => match Errno::from_io_error(&error) {
                // A signal, a temporary lack of memory, or the submitting thread has ended.
                Some(Errno::INTR | Errno::AGAIN | Errno::NOBUFS | Errno::CANCELED) => Some(error),
                _ => return Err(error),
            },
        };
        self.stalls += 1;
        if self.stalls > STALLS_MAX {
            return Err(refused.unwrap_or_else(|| io::Error::other("the kernel returns only parts of a block")));
        }
        if self.stalls > STALLS_AT_ONCE {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(false)
    }

    /// Performs the whole read by calls of `read_at`. Returns the range of the wanted bytes in the buffer, which must
    /// have [`Transfer::span`] bytes.
    pub(super) fn run(
        mut self,
        buffer: &mut [u8],
        mut read_at: impl FnMut(u64, &mut [u8]) -> io::Result<usize>,
    ) -> io::Result<Range<usize>> {
        loop {
            let (offset, part) = self.next();
            let answer = read_at(offset, &mut buffer[part]);
            if self.advance(answer)? {
                return Ok(self.requested());
            }
        }
    }
}

/// Fails if a read ends beyond the end of a file of `bytes`.
pub(super) fn check_end(read: &Read, bytes: u64) -> io::Result<()> {
    match read.offset.checked_add(u64::from(read.length)) {
        Some(end) if end <= bytes => Ok(()),
        _ => Err(ended(read, bytes.saturating_sub(read.offset))),
    }
}

fn ended(read: &Read, found: u64) -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        format!("expected {} bytes, found {found}: the file is truncated", read.length),
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::read::FileIndex;

    fn read(offset: u64, length: u32) -> Read {
        Read { file: FileIndex(0), offset, length, tag: 0 }
    }

    proptest! {
        #[test]
        fn any_answers_give_the_wanted_bytes(
            offset in 0u64..5000,
            length in 1u32..5000,
            align in prop::sample::select(vec![1u32, 512, 4096]),
            answers in prop::collection::vec(-2i32..6000, 0..40),
        ) {
            // Byte n of the file has the value n % 251. The file ends right after the wanted bytes.
            let bytes = offset + u64::from(length);
            let value = |at: u64| (at % 251) as u8;
            let transfer = Transfer::new(read(offset, length), align);
            prop_assert!(transfer.span() <= Transfer::span_max(length, align));
            let mut buffer = vec![255; transfer.span()];
            let mut answers = answers.into_iter();
            let requested = transfer.run(&mut buffer, |from, part| {
                assert_eq!(from % u64::from(align), 0);
                assert_eq!(part.len() % align as usize, 0);
                let there = part.len().min((bytes - from) as usize);
                let count = match answers.next() {
                    Some(-2) => return Err(Errno::AGAIN.into()),
                    Some(-1) => return Err(Errno::INTR.into()),
                    Some(short) => (short as usize).clamp(1, there),
                    None => there,
                };
                for (at, byte) in part[..count].iter_mut().enumerate() {
                    *byte = value(from + at as u64);
                }
                Ok(count)
            });
            let found = &buffer[requested.unwrap()];
            prop_assert_eq!(found, (offset..bytes).map(value).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_end_of_the_file_is_an_error_that_states_the_bytes_found() {
        // Direct reads start at 512. A read there always returns 388 bytes, because the file has 900.
        for (align, answers, found) in [(1, vec![300, 0], 300), (512, vec![388], 300), (512, vec![512, 388], 812)] {
            let mut transfer = Transfer::new(read(600, 1000), align);
            let last = *answers.last().unwrap();
            let mut answers = answers.into_iter();
            let error = (0..100).find_map(|_| {
                let step = transfer.advance(Ok(answers.next().unwrap_or(last)));
                step.inspect(|is_complete| assert!(!is_complete, "the read must not succeed")).err()
            });
            let error = error.expect("the read fails");
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
            assert_eq!(error.to_string(), format!("expected 1000 bytes, found {found}: the file is truncated"));
        }
    }

    #[test]
    fn endless_refusals_become_an_error() {
        let mut transfer = Transfer::new(read(0, 10), 1);
        let answers = (0..).find(|_| transfer.advance(Err(Errno::AGAIN.into())).is_err());
        assert_eq!(answers, Some(STALLS_MAX));
    }

    #[test]
    fn other_errors_are_final() {
        let mut transfer = Transfer::new(read(0, 10), 1);
        transfer.advance(Err(Errno::IO.into())).unwrap_err();
    }
}
