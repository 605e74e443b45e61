//! The processes that train together, as one of them sees it.

use std::{
    mem,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use grappa_io::progress::{Progress, Silent, check_stopped};
use serde::{Serialize, de::DeserializeOwned};
use tch::{Device, Tensor};

use super::{
    keys::{self, Departure, json},
    place::Place,
    store::StoreServer,
    watch::Watch,
};
use crate::{
    Error, Result,
    shim::c10d::{self, Receives, Reduction},
};

/// An operation is awaited for so long before the watch is asked for the cause of its delay.
const SLICE: Duration = Duration::from_millis(100);
/// An operation that a rank left behind can still end for so long: the rank may have finished its part before it left.
const GRACE: Duration = Duration::from_secs(1);
/// A rank that leaves waits at most so long for the others to notice, if it serves the store.
const LINGER: Duration = Duration::from_secs(5);

/// Bytes that ranks send each other for the length of a message.
pub const LENGTH_BYTES: usize = size_of::<i64>();
/// Bytes that a rank leaves behind under one key. A store takes 8 MiB at most.
const PIECE_BYTES: usize = 4 << 20;

/// Why there is a group of Gloo.
const CONNECTED: &str = "the group is connected until it is left";

/// The processes that train together, as one of them sees it.
#[derive(Debug)]
pub struct ProcessGroup {
    pub(super) place: Place,
    pub(super) watch: Watch,
    /// If this process serves the store.
    pub(super) server: Option<StoreServer>,
    gloo: Mutex<Option<c10d::Group>>,
    /// Number of messages so far. All ranks exchange messages in the same order, so it names them.
    messages: AtomicU64,
    /// Whether this process was asked to stop.
    is_stopped: fn() -> bool,
}

impl ProcessGroup {
    /// A group that is not connected yet.
    pub(super) fn new(place: Place, watch: Watch, server: Option<StoreServer>, is_stopped: fn() -> bool) -> Self {
        Self { place, watch, server, gloo: Mutex::new(None), messages: AtomicU64::new(0), is_stopped }
    }

    /// The place of this process.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Whether this is rank 0, which writes the files of a run.
    pub fn is_first(&self) -> bool {
        self.place.rank == 0
    }

    /// Whether a rank has left, or cannot be reached. Then the work in progress cannot be finished.
    pub fn is_broken(&self) -> bool {
        self.watch.departure().is_some()
    }

    /// The error of a rank that left with one, or that cannot be reached. None if all are there, or one was asked to stop.
    pub fn failure(&self) -> Option<Error> {
        let departure = self.watch.departure().filter(|departure| !departure.is_stop)?;
        Some(self.error(departure))
    }

    /// Which rank was asked to stop, if it is another one.
    pub fn stopped_by(&self) -> Option<u32> {
        let departure = self.watch.departure().filter(|departure| departure.is_stop)?;
        (departure.rank != self.place.rank).then_some(departure.rank)
    }

    /// Reduces the tensors of all ranks to one, which replaces each. Gives up if progress says to stop; this rank has to leave then.
    pub(super) fn reduce(&self, tensor: &Tensor, reduction: Reduction, progress: &dyn Progress) -> Result<()> {
        self.finished(|gloo| gloo.all_reduce(tensor, reduction), progress)
    }

    /// Sends `messages[r]` to rank r, and returns the message of each rank, by rank. All must call it. The message of this rank to itself
    /// does not leave the process. `lengths` has the length of each rank's message to this one; without them, the ranks tell each other
    /// first, with [`LENGTH_BYTES`] each.
    ///
    /// # Errors
    /// If a rank has left or cannot be reached.
    ///
    /// # Panics
    /// If there is not one message, or length, per rank.
    pub fn all_to_all(&self, messages: &[&[u8]], lengths: Option<&[usize]>) -> Result<Vec<Vec<u8>>> {
        let sent: Vec<i64> = messages.iter().map(|message| message.len() as i64).collect();
        let received: Vec<i64> = match lengths {
            Some(lengths) => lengths.iter().map(|length| *length as i64).collect(),
            None => {
                let one_each = vec![1; messages.len()];
                let received_values = self.all_to_all_values(&Tensor::from_slice(&sent), &one_each, &one_each)?;
                Vec::try_from(received_values).expect("a length of each rank")
            }
        };
        let output = self.all_to_all_values(&Tensor::from_slice(&messages.concat()), &sent, &received)?;
        let mut bytes = Vec::<u8>::try_from(output).expect("bytes");
        let mut taken: Vec<Vec<u8>> =
            received.iter().rev().map(|length| bytes.split_off(bytes.len() - *length as usize)).collect();
        taken.reverse();
        Ok(taken)
    }

    /// Sends each rank its part of `values`, one after the other by rank, and returns the parts that each sent to this one, by rank. `sent`
    /// and `received` are the numbers of values. All must call it. `values` is contiguous, and in the processor's memory. The part of this
    /// rank for itself does not leave the process.
    ///
    /// # Errors
    /// If a rank has left or cannot be reached.
    pub fn all_to_all_values(&self, values: &Tensor, sent: &[i64], received: &[i64]) -> Result<Tensor> {
        let output = Tensor::zeros([received.iter().sum::<i64>()], (values.kind(), Device::Cpu));
        let receives = self.receive(&output, received, 0)?;
        self.send(receives, values, Some(sent))?;
        let own = self.place.rank as usize;
        let [from, to] = [sent, received].map(|lengths| lengths[..own].iter().sum::<i64>());
        output.narrow(0, to, received[own]).copy_(&values.narrow(0, from, sent[own]));
        Ok(output)
    }

    /// Gets ready to receive parts of `output` from the other ranks.
    pub(super) fn receive(&self, output: &Tensor, lengths: &[i64], tag: u8) -> Result<Receives> {
        let gloo = self.gloo();
        let gloo = gloo.as_ref().expect(CONNECTED);
        gloo.receive(output, lengths, tag).map_err(|text| self.explain(&text))
    }

    /// Sends a part of `input` to each other rank, or all of it without lengths. Waits until they are sent, and for the parts that
    /// `receives` is for.
    pub(super) fn send(&self, receives: Receives, input: &Tensor, lengths: Option<&[i64]>) -> Result<()> {
        self.finished(|gloo| gloo.send(receives, input, lengths), &Silent)
    }

    pub(super) fn gloo(&self) -> MutexGuard<'_, Option<c10d::Group>> {
        self.gloo.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts an operation in which all ranks take part, and waits for its end. Gives up if progress says to stop.
    fn finished(
        &self,
        start: impl FnOnce(&c10d::Group) -> c10d::Result<c10d::Work>,
        progress: &dyn Progress,
    ) -> Result<()> {
        let gloo = self.gloo();
        let gloo = gloo.as_ref().expect(CONNECTED);
        let work = start(gloo).map_err(|text| self.explain(&text))?;
        let mut left_at = None;
        loop {
            if work.wait(SLICE).map_err(|text| self.explain(&text))? {
                return Ok(());
            }
            let Some(departure) = self.watch.departure() else {
                check_stopped(progress)?;
                continue;
            };
            if left_at.get_or_insert_with(Instant::now).elapsed() > GRACE {
                return Err(self.error(departure));
            }
        }
    }

    /// Passes a value of rank 0 to all. Only rank 0 calls `value`. The others wait as long as rank 0 shows signs of life.
    ///
    /// The value is passed as JSON, in which a number that is not finite becomes null. Pass the bits of one that may be NaN or infinite.
    ///
    /// # Errors
    /// That of `value`; if a rank has left or cannot be reached; or if this one was asked to stop while it waited.
    pub fn share<T: Serialize + DeserializeOwned>(&self, name: &str, value: impl FnOnce() -> Result<T>) -> Result<T> {
        let key = self.message(name);
        if self.is_first() {
            let value = value()?;
            self.put(&key, &value)?;
            return Ok(value);
        }
        self.wait_for(&key)
    }

    /// Collects a value of each rank, in the order of ranks. Rank 0 gets all of them, and the others none.
    ///
    /// # Errors
    /// As [`ProcessGroup::share`].
    pub fn gather<T: Serialize + DeserializeOwned>(&self, name: &str, value: T) -> Result<Option<Vec<T>>> {
        let message = self.message(name);
        if !self.is_first() {
            self.put(&format!("{message}/{}", self.place.rank), &value)?;
            return Ok(None);
        }
        let mut values = vec![value];
        for rank in 1..self.place.ranks {
            let key = format!("{message}/{rank}");
            values.push(self.wait_for(&key)?);
            self.watch.delete(&key).map_err(|text| self.explain(&text))?;
        }
        Ok(Some(values))
    }

    /// The values that some ranks tell each other, in the order of `ranks`. All of these must call it, with a name that was not used
    /// before.
    pub(super) fn exchange<T: Serialize + DeserializeOwned>(
        &self,
        name: &str,
        ranks: &[u32],
        value: T,
    ) -> Result<Vec<T>> {
        self.put(&format!("{name}/{}", self.place.rank), &value)?;
        ranks.iter().map(|rank| self.wait_for(&format!("{name}/{rank}"))).collect()
    }

    /// The values that ranks left under `name` by [`ProcessGroup::leave_behind`] when they stopped, of all other ranks, as far as they
    /// arrive.
    pub fn left_behind<T: DeserializeOwned>(&self, name: &str) -> Vec<Option<T>> {
        let until = Instant::now() + LINGER;
        (1..self.place.ranks)
            .map(|rank| {
                loop {
                    match self.watch.get(&format!("{name}/{rank}")) {
                        Ok(Some(value)) => return serde_json::from_slice(&value).ok(),
                        Ok(None) if Instant::now() < until => thread::sleep(Duration::from_millis(10)),
                        _ => return None,
                    }
                }
            })
            .collect()
    }

    /// Leaves a value for rank 0, which takes it if the others stop too.
    pub fn leave_behind<T: Serialize>(&self, name: &str, value: &T) {
        let key = format!("{name}/{}", self.place.rank);
        // If this fails, rank 0 does without.
        let _ = self.watch.set(&key, &json(value));
    }

    /// As [`ProcessGroup::left_behind`], of the bytes that ranks left by [`ProcessGroup::leave_bytes_behind`].
    pub fn left_bytes_behind(&self, name: &str) -> Vec<Option<Vec<u8>>> {
        let pieces: Vec<Option<u64>> = self.left_behind(name);
        (1..)
            .zip(pieces)
            .map(|(rank, pieces): (u32, Option<u64>)| {
                let pieces =
                    (0..pieces?).map(|number| self.watch.get(&format!("{name}/{rank}/{number}")).ok().flatten());
                Some(pieces.collect::<Option<Vec<Vec<u8>>>>()?.concat())
            })
            .collect()
    }

    /// As [`ProcessGroup::leave_behind`], of any number of bytes.
    pub fn leave_bytes_behind(&self, name: &str, bytes: &[u8]) {
        let mut pieces: u64 = 0;
        for piece in bytes.chunks(PIECE_BYTES) {
            // If this fails, rank 0 does without.
            let _ = self.watch.set(&format!("{name}/{}/{pieces}", self.place.rank), piece);
            pieces += 1;
        }
        self.leave_behind(name, &pieces);
    }

    /// Calls `work` on one rank after the other, rank 0 first.
    ///
    /// # Errors
    /// The error of `work`, and the errors of [`ProcessGroup::share`].
    pub fn in_turn<T>(&self, name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let message = self.message(name);
        if let Some(before) = self.place.rank.checked_sub(1) {
            self.wait_for::<()>(&format!("{message}/{before}"))?;
        }
        let done = work()?;
        self.put(&format!("{message}/{}", self.place.rank), &())?;
        Ok(done)
    }

    /// Waits until every rank has called it. To be called at the end of the work.
    ///
    /// # Errors
    /// As [`ProcessGroup::share`].
    pub fn finish(&self) -> Result<()> {
        self.gather("finish", ())?;
        self.share("finished", || Ok(()))?;
        self.put(&keys::bye(self.place.rank), &())?;
        self.linger();
        drop(self.gloo().take());
        Ok(())
    }

    /// Tells the others that this rank ends before the work is finished, and why. `is_stop` says that it was asked to stop. The first rank
    /// to say so is the one that the others name. If another rank has left or cannot be reached, that is the reason, and this rank says so.
    pub fn announce(&self, is_stop: bool, reason: &str) {
        self.watch.publish(&self.watch.departure().unwrap_or_else(|| Departure {
            rank: self.place.rank,
            is_stop,
            reason: reason.to_owned(),
        }));
    }

    /// Ends the part of this rank, after [`ProcessGroup::announce`]. The process should then end without running static destructors,
    /// because threads of c10d may still be at work.
    pub fn leave(&self) {
        let _ = self.watch.set(&keys::bye(self.place.rank), &json(&()));
        self.linger();
        // Its destructor would wait for operations that never end.
        mem::forget(self.gloo().take());
    }

    /// The server of the store stays until the others are gone.
    fn linger(&self) {
        if !self.place.serves_store() {
            return;
        }
        let until = Instant::now() + LINGER;
        for rank in 1..self.place.ranks {
            while Instant::now() < until && self.watch.needs_store(rank) {
                thread::sleep(Duration::from_millis(10));
            }
        }
    }

    fn message(&self, name: &str) -> String {
        format!("message/{}/{name}", self.messages.fetch_add(1, Relaxed))
    }

    fn put<T: Serialize>(&self, key: &str, value: &T) -> Result<()> {
        self.watch.set(key, &json(value)).map_err(|text| self.explain(&text))
    }

    /// The value of a key, as soon as it has one. Gives up if this process is asked to stop; this rank has to leave then.
    fn wait_for<T: DeserializeOwned>(&self, key: &str) -> Result<T> {
        const PAUSE_MIN: Duration = Duration::from_micros(200);
        const PAUSE_MAX: Duration = Duration::from_millis(50);
        /// A value is seen late by at most this part of the time that it took.
        const LATE_SHARE: u32 = 16;
        let begun = Instant::now();
        loop {
            if let Some(value) = self.watch.get(key).map_err(|text| self.explain(&text))? {
                return serde_json::from_slice(&value)
                    .map_err(|error| Error::Distributed(format!("{key} of another rank cannot be read: {error}")));
            }
            if let Some(departure) = self.watch.departure() {
                return Err(self.error(departure));
            }
            if (self.is_stopped)() {
                return Err(grappa_io::Error::Stopped.into());
            }
            thread::sleep((begun.elapsed() / LATE_SHARE).clamp(PAUSE_MIN, PAUSE_MAX));
        }
    }

    /// The error for a failed operation of c10d. Its message names no rank, so this waits until the watch knows who is missing.
    pub(super) fn explain(&self, text: &str) -> Error {
        match self.watch.find_missing() {
            Some(departure) => self.error(departure),
            None => Error::Distributed(format!("rank {} lost the connection to another rank: {text}", self.place.rank)),
        }
    }

    fn error(&self, departure: Departure) -> Error {
        // The others name the same rank as the cause, and not this one.
        self.watch.publish(&departure);
        if departure.is_stop {
            return grappa_io::Error::Stopped.into();
        }
        Error::Distributed(format!("rank {} {}", departure.rank, departure.reason))
    }
}
