//! Reads by io_uring: deep queues without threads, bypassing the page cache, into registered buffers.
//!
//! ```text
//! slots      one for each read in flight, each with a piece of the arena
//! free       slots without a read
//! owed       reads that the kernel has, or will have at the next entry
//! answered   completions from the kernel that are not handled yet
//!
//! submit:    free slot -> describe the read to the kernel; enter
//! complete:  until a read is complete: take the kernel's answers;
//!            a short read is submitted again for the rest; enter, and wait if no read is complete
//! ```
//!
//! The queues have room for all slots if the kernel grants the memory. Otherwise submissions are entered in parts, and
//! the kernel keeps completions that do not fit until others were taken.
//!
//! Buffers are freed only when the kernel owes nothing. So the engine waits for the reads in flight after an error and
//! when it is dropped.

#![expect(unsafe_code, reason = "the kernel writes into memory that is described to it by address")]

use std::{
    collections::VecDeque,
    io,
    mem::ManuallyDrop,
    ops::Range,
    os::fd::{AsRawFd, RawFd},
    sync::{Arc, Once},
    time::Duration,
};

use io_uring::{IoUring, Probe, opcode, squeue, types};
use memmap2::MmapRaw;
use rustix::io::Errno;

use super::{
    files::{ALIGN_MAX, Descriptors, Open, ReadFile},
    options::{Options, ReadEngine},
    request::Read,
    transfer::Transfer,
};
use crate::{Error, Result, arena::Arena};

/// Refused entries in a row, a millisecond apart, before the engine returns an error.
const REFUSALS_MAX: u32 = 1000;

/// Minimum entries of a ring: a smaller one is not worth having.
const ENTRIES_MIN: u32 = 16;

/// Reads files through a ring of its own.
pub struct Uring {
    ring: IoUring,
    buffers: Buffers,
    descriptors: Descriptors,
    /// All files if they are registered with the kernel, in the order of the list; otherwise empty.
    registered: Vec<Arc<Open>>,
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    owed: usize,
    answered: VecDeque<(u32, i32)>,
    /// Whether the kernel lost a completion. Then the engine can read nothing more.
    lost: bool,
    options: Options,
}

/// A read in flight.
struct Slot {
    transfer: Transfer,
    file: Arc<Open>,
}

/// The memory of all slots.
struct Buffers {
    /// Freed only when the kernel certainly writes no more.
    map: ManuallyDrop<MmapRaw>,
    /// The part of the mapping that is divided into slots.
    bytes: Range<usize>,
    slot_bytes: usize,
    /// Whether it is registered as the kernel's buffer 0.
    registered: bool,
}

impl Uring {
    /// Makes a ring for `files`. The inner error is the reason why the kernel refuses it.
    pub fn new(files: Arc<[ReadFile]>, options: Options) -> Result<std::result::Result<Self, String>> {
        options.check()?;
        match ring(options.depth as u32) {
            Ok(ring) => Self::with_ring(ring, files, options).map(Ok),
            Err(error) => Ok(Err(refusal(&error))),
        }
    }

    fn with_ring(ring: IoUring, files: Arc<[ReadFile]>, options: Options) -> Result<Self> {
        let mut descriptors = Descriptors::new(files, options.direct);
        let registered = register_files(&ring, &mut descriptors)?;
        let mut buffers = Buffers::new(&options)?;
        buffers.register(&ring);
        Ok(Self {
            ring,
            buffers,
            descriptors,
            registered,
            slots: (0..options.depth).map(|_| None).collect(),
            free: (0..options.depth as u32).rev().collect(),
            owed: 0,
            answered: VecDeque::with_capacity(options.depth),
            lost: false,
            options,
        })
    }

    fn try_submit(&mut self, reads: &[Read]) -> Result<usize> {
        if self.lost {
            return Err(self.error(io::Error::other("the ring failed before")));
        }
        let mut count = 0;
        for read in reads {
            let Some(&slot) = self.free.last() else { break };
            self.options.check_read(read, self.descriptors.files().len());
            self.descriptors.check_end(read)?;
            let Some(file) = self.descriptors.get(read.file)? else {
                break;
            };
            self.free.pop();
            let transfer = Transfer::new(*read, file.align);
            self.slots[slot as usize] = Some(Slot { transfer, file });
            self.describe(slot)?;
            count += 1;
        }
        if count > 0 {
            self.enter(0)?;
        }
        Ok(count)
    }

    fn try_complete(&mut self, done: &mut dyn FnMut(&Read, &[u8])) -> Result<usize> {
        let mut count = 0;
        while self.in_flight() > 0 {
            self.take_answers()?;
            while let Some((slot, answer)) = self.answered.pop_front() {
                if let Some((read, requested)) = self.settle(slot, answer)? {
                    // SAFETY: the kernel has completed this slot's read, and gets the slot again only by a later
                    // submission.
                    done(&read, unsafe { self.buffers.part(slot, requested) });
                    count += 1;
                }
            }
            if count > 0 {
                if !self.ring.submission().is_empty() {
                    self.enter(0)?;
                }
                break;
            }
            self.enter(1)?;
        }
        Ok(count)
    }

    /// Moves completions from the kernel's queue to `answered`.
    fn take_answers(&mut self) -> Result<()> {
        let mut queue = self.ring.completion();
        for entry in &mut queue {
            self.owed -= 1;
            self.answered.push_back((entry.user_data() as u32, entry.result()));
        }
        let lost = queue.overflow() > 0;
        drop(queue);
        if lost {
            return Err(self.error(io::Error::other("the kernel lost completions")));
        }
        Ok(())
    }

    /// Handles an answer. If the read is complete, frees the slot and returns the read and the range of its bytes in
    /// the slot's buffer. Otherwise queues the rest of the read.
    fn settle(&mut self, number: u32, answer: i32) -> Result<Option<(Read, Range<usize>)>> {
        let slot = self.slots[number as usize].as_mut().expect("answers are for reads under way");
        let read = slot.transfer.read;
        let (offset, part) = slot.transfer.next();
        let answer = match u32::try_from(answer) {
            Ok(count) => Ok(count as usize),
            Err(_) => Err(io::Error::from_raw_os_error(-answer)),
        };
        // SAFETY: the kernel has completed this slot's read, and gets the slot again only by `describe` below.
        let part = unsafe { self.buffers.part(number, part) };
        let answer = self.options.answer(read.file, offset, part, answer);
        if slot.file.align > 1 && answer.as_ref().is_err_and(|error| Errno::from_io_error(error) == Some(Errno::INVAL))
        {
            let file = self.descriptors.refuse_direct(read.file)?;
            let transfer = Transfer::new(read, file.align);
            self.slots[number as usize] = Some(Slot { transfer, file });
            self.describe(number)?;
            return Ok(None);
        }
        let is_complete = slot.transfer.advance(answer).map_err(|source| self.descriptors.error(&read, source))?;
        if !is_complete {
            self.describe(number)?;
            return Ok(None);
        }
        let requested = slot.transfer.requested();
        self.slots[number as usize] = None;
        self.free.push(number);
        Ok(Some((read, requested)))
    }

    /// Queues the next submission of a slot. The next `enter` hands it to the kernel.
    fn describe(&mut self, number: u32) -> Result<()> {
        let slot = self.slots[number as usize].as_ref().expect("the slot has a read");
        let (offset, part) = slot.transfer.next();
        let index = slot.transfer.read.file.0;
        let (fd, flags) = match self.registered.get(index as usize) {
            Some(file) if Arc::ptr_eq(file, &slot.file) => (index as RawFd, squeue::Flags::FIXED_FILE),
            _ => (slot.file.file.as_raw_fd(), squeue::Flags::empty()),
        };
        let entry = self.buffers.entry(fd, number, part, offset).flags(flags).user_data(number.into());
        while self.ring.submission().is_full() {
            self.enter(0)?;
            if self.ring.submission().is_full() {
                self.take_answers()?;
            }
        }
        // SAFETY: the part lies within the mapping and belongs to this slot. No other read gets the slot until the
        // kernel has answered. Mapping and descriptor live until then: the slot holds the file, and `abandon` and
        // `drop` wait.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("the submission queue has room");
        self.owed += 1;
        Ok(())
    }

    /// Hands the submission queue to the kernel, and waits for `wait` completions. Returns earlier if completions must
    /// be taken before the kernel accepts more.
    fn enter(&mut self, wait: usize) -> Result<()> {
        let mut refusals = 0;
        loop {
            let allowed = match &self.options.fault_injector {
                Some(injector) => injector.enter(),
                None => Ok(()),
            };
            let Err(error) = allowed.and_then(|()| self.ring.submit_and_wait(wait)) else {
                // The kernel may have taken only a part; then it did not wait.
                if self.ring.submission().is_empty() || !self.ring.completion().is_empty() {
                    return Ok(());
                }
                continue;
            };
            if !passes(&error, &mut refusals) {
                return Err(self.error(error));
            }
            if !self.ring.completion().is_empty() {
                return Ok(());
            }
        }
    }

    /// An error of the whole ring. It names one of the lost reads.
    fn error(&self, source: io::Error) -> Error {
        match self.slots.iter().flatten().next() {
            Some(slot) => self.descriptors.error(&slot.transfer.read, source),
            None => Error::Unsupported {
                capability: "io_uring",
                cause: source.to_string(),
                remedy: "read with threads (pread)",
            },
        }
    }

    /// Waits until the kernel owes nothing, and discards the reads in flight.
    fn abandon(&mut self) {
        if self.wait_for_all() {
            self.slots.fill_with(|| None);
            self.free = (0..self.slots.len() as u32).rev().collect();
        } else {
            // The kernel may still write into any buffer, so no buffer is used again.
            self.lost = true;
            self.slots.clear();
            self.free.clear();
        }
        self.answered.clear();
    }

    /// Waits until the kernel owes nothing. False if that cannot be determined.
    fn wait_for_all(&mut self) -> bool {
        let mut refusals = 0;
        while self.owed > 0 {
            if let Err(error) = self.ring.submit_and_wait(1)
                && !passes(&error, &mut refusals)
            {
                return false;
            }
            let mut queue = self.ring.completion();
            self.owed -= queue.by_ref().count();
            if queue.overflow() > 0 {
                return false;
            }
        }
        true
    }
}

impl ReadEngine for Uring {
    fn name(&self) -> &'static str {
        "uring"
    }

    fn options(&self) -> &Options {
        &self.options
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn submit(&mut self, reads: &[Read]) -> Result<usize> {
        self.try_submit(reads).inspect_err(|_| self.abandon())
    }

    fn complete(&mut self, done: &mut dyn FnMut(&Read, &[u8])) -> Result<usize> {
        self.try_complete(done).inspect_err(|_| self.abandon())
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        if !self.lost && self.wait_for_all() {
            if self.buffers.registered {
                // Unregister now: the ring would do it when it is dropped, which is after the buffers.
                let _ = self.ring.submitter().unregister_buffers();
            }
            // SAFETY: the kernel owes nothing, so it writes no more. The buffers are not used after this.
            unsafe { ManuallyDrop::drop(&mut self.buffers.map) };
        }
    }
}

impl Buffers {
    fn new(options: &Options) -> Result<Self> {
        let (map, bytes) = Arena::new(options.memory_bytes() as usize)?.into_raw();
        Ok(Self {
            map: ManuallyDrop::new(map),
            bytes,
            slot_bytes: Transfer::span_max(options.read_bytes_max, ALIGN_MAX),
            registered: false,
        })
    }

    /// Registers the memory with the kernel, so that it need not look up the pages for each read.
    fn register(&mut self, ring: &IoUring) {
        static TOLD: Once = Once::new();
        let all = libc::iovec { iov_base: self.address(0, 0).cast(), iov_len: self.bytes.len() };
        // SAFETY: the mapping lives until `Uring::drop`, which undoes the registration first.
        match unsafe { ring.submitter().register_buffers(&[all]) } {
            Ok(()) => self.registered = true,
            Err(error) => TOLD.call_once(|| {
                tracing::warn!(
                    "cannot register {} bytes of read buffers with io_uring: {error}; reads take more processor time; raise \
                     the limit (`ulimit -l`) or choose a smaller depth",
                    self.bytes.len()
                );
            }),
        }
    }

    /// Address of byte `at` of a slot.
    fn address(&self, slot: u32, at: usize) -> *mut u8 {
        let place = self.bytes.start + slot as usize * self.slot_bytes + at;
        self.map.as_mut_ptr().wrapping_add(place)
    }

    /// Part of a slot.
    ///
    /// # Safety
    /// The kernel must not be reading into the slot, and no other reference to the slot may be in use.
    unsafe fn part(&mut self, slot: u32, part: Range<usize>) -> &mut [u8] {
        assert!(part.start <= part.end && part.end <= self.slot_bytes, "{part:?} of a slot");
        // SAFETY: the part lies within the mapping, whose length was computed for all slots. Its bytes are initialized,
        // at first to zero. The caller ensures that nothing else uses them.
        unsafe { std::slice::from_raw_parts_mut(self.address(slot, part.start), part.len()) }
    }

    /// Describes a read into a part of a slot, from a descriptor or a registered file.
    fn entry(&self, fd: RawFd, slot: u32, part: Range<usize>, offset: u64) -> squeue::Entry {
        assert!(part.end <= self.slot_bytes, "{part:?} of a slot");
        let (address, length) = (self.address(slot, part.start), part.len() as u32);
        match self.registered {
            true => opcode::ReadFixed::new(types::Fd(fd), address, length, 0).offset(offset).build(),
            false => opcode::Read::new(types::Fd(fd), address, length).offset(offset).build(),
        }
    }
}

/// Whether an entry may succeed if it is tried again. Waits a moment after a refusal.
fn passes(error: &io::Error, refusals: &mut u32) -> bool {
    match Errno::from_io_error(error) {
        Some(Errno::INTR) => true,
        Some(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS) if *refusals < REFUSALS_MAX => {
            *refusals += 1;
            std::thread::sleep(Duration::from_millis(1));
            true
        }
        _ => false,
    }
}

/// Makes a ring for `depth` reads in flight, and checks that it supports the needed operations. The ring is smaller if
/// memory is short: before Linux 5.12, its memory counts as locked.
fn ring(depth: u32) -> io::Result<IoUring> {
    // Completions are only taken during system calls, so the kernel need not interrupt a running thread for them.
    let mut entries = depth;
    let ring = loop {
        let built = match IoUring::builder().setup_coop_taskrun().build(entries) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => IoUring::builder().build(entries),
            built => built,
        };
        match built {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOMEM) && entries > ENTRIES_MIN => entries /= 2,
            ring => break ring?,
        }
    };
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    if !probe.is_supported(opcode::Read::CODE) || !probe.is_supported(opcode::ReadFixed::CODE) {
        return Err(Errno::NOSYS.into());
    }
    // A seccomp filter may allow making a ring, but not entering it.
    ring.submit()?;
    Ok(ring)
}

/// Registers the files with the kernel, in the order of the list. Empty if the kernel refuses.
fn register_files(ring: &IoUring, descriptors: &mut Descriptors) -> Result<Vec<Arc<Open>>> {
    let files = descriptors.open_all()?.unwrap_or_default();
    if files.is_empty() {
        return Ok(files);
    }
    let numbers: Vec<RawFd> = files.iter().map(|open| open.file.as_raw_fd()).collect();
    match ring.submitter().register_files(&numbers) {
        Ok(()) => Ok(files),
        Err(error) => {
            tracing::debug!("cannot register {} files with io_uring: {error}", files.len());
            Ok(Vec::new())
        }
    }
}

/// Why the kernel refuses a ring, and how to fix it.
fn refusal(error: &io::Error) -> String {
    let remedy = match Errno::from_io_error(error) {
        Some(Errno::NOSYS) => "the kernel (before 5.6) or the container's seccomp filter lacks it: allow io_uring_*",
        Some(Errno::PERM | Errno::ACCESS) => {
            "the container's seccomp filter or the setting kernel.io_uring_disabled forbids it: allow io_uring_*, or \
             set it to 0"
        }
        Some(Errno::NOMEM) => {
            "too little memory may be locked: raise the limit (`ulimit -l`), or choose a smaller depth"
        }
        Some(Errno::MFILE | Errno::NFILE) => "too many files are open: raise the limit (`ulimit -n`)",
        _ => "this machine does not support it",
    };
    format!("{error}; {remedy}")
}

#[cfg(test)]
mod tests;
