//! PyTorch's distributed engine, c10d: its group of processes on Gloo, and the client of its key-value store (TCPStore).
//!
//! The wheel of PyTorch has the headers of c10d, but not the headers of gloo. The headers in `shim/gloo` declare what c10d's headers name,
//! so that they compile; nothing of gloo is used directly.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    ptr::{self, NonNull},
    slice, thread,
    time::{Duration, Instant},
};

use tch::Tensor;

/// `Err` has the message of c10d.
pub(crate) type Result<T> = std::result::Result<T, String>;

const FAILED: c_int = -1;
const DONE: c_int = 0;
const NOT_YET: c_int = 1;

/// An object of C++; null after an error.
type Object = *mut c_void;
/// A text that ends with a zero.
type Text = *const c_char;
/// Where a function of C++ leaves the text of an error.
type Problem = *mut *mut c_char;
/// Takes a value that C++ lends for the call.
type Take = unsafe extern "C" fn(*mut c_void, *const u8, usize);
/// Sets a key of a [`Keys`]: the keys, the key, the value, and what takes the text of an error.
type SetKey = unsafe extern "C" fn(*mut c_void, *const c_char, *const u8, usize, *mut c_void, Take) -> c_int;
/// Passes the value of a key, or the text of an error, to a `Take`.
type GetKey = unsafe extern "C" fn(*mut c_void, *const c_char, *mut c_void, Take) -> c_int;
type FreeKeys = unsafe extern "C" fn(*mut c_void);

// SAFETY: these are in c10d.cpp, with these types. The first has no conditions.
unsafe extern "C" {
    safe fn grappa_log_fatal_only();
    fn grappa_free_text(text: *mut c_char);
    fn grappa_store_open(host: Text, port: u16, connect_ms: i64, timeout_ms: i64, error: Problem) -> Object;
    fn grappa_store_free(store: Object);
    fn grappa_store_set(store: Object, key: Text, value: *const u8, length: usize, error: Problem) -> c_int;
    fn grappa_store_set_once(
        store: Object,
        key: Text,
        value: *const u8,
        length: usize,
        context: *mut c_void,
        take: Take,
        error: Problem,
    ) -> c_int;
    fn grappa_store_get(store: Object, key: Text, context: *mut c_void, take: Take, error: Problem) -> c_int;
    fn grappa_store_delete(store: Object, key: Text, error: Problem) -> c_int;
    fn grappa_group_new(
        keys: *mut c_void,
        set: SetKey,
        get: GetKey,
        free: FreeKeys,
        rank: c_int,
        size: c_int,
        patience_ms: i64,
        timeout_ms: i64,
        error: Problem,
    ) -> Object;
    fn grappa_group_free(group: Object);
    fn grappa_all_reduce(group: Object, tensor: *const c_void, unites: bool, error: Problem) -> Object;
    fn grappa_receive(group: Object, output: *const c_void, values: *const i64, tag: c_int, error: Problem) -> Object;
    fn grappa_send(
        group: Object,
        receives: Object,
        input: *const c_void,
        values: *const i64,
        tag: c_int,
        error: Problem,
    ) -> Object;
    fn grappa_work_free(work: Object);
    fn grappa_work_wait(work: Object, timeout_ms: i64, error: Problem) -> c_int;
}

/// Keeps the log of c10d off stderr, except for what ends the process. Its errors are returned anyway. TORCH_CPP_LOG_LEVEL brings the
/// log back.
pub(crate) fn log_fatal_only() {
    if std::env::var_os("TORCH_CPP_LOG_LEVEL").is_none() {
        grappa_log_fatal_only();
    }
}

/// The longest try to connect to a store.
const TRY: Duration = Duration::from_secs(10);
/// The pause before the next one.
const PAUSE: Duration = Duration::from_millis(100);

/// Where the processes of a [`Group`] find each other: a key-value store that they share. No call waits for a key.
pub(crate) trait Keys {
    fn set(&self, key: &str, value: &[u8]) -> Result<()>;
    /// The value of a key; none if it has no value yet.
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>>;
}

/// A connection to a TCPStore.
#[derive(Debug)]
pub(crate) struct Store(NonNull<c_void>);

// SAFETY: a TCPStore may be used by any thread; it locks itself.
unsafe impl Send for Store {}

impl Store {
    /// Connects to the store at `host:port` within `join`. Later, each answer may take `timeout`. Both hold only if the other end is
    /// alive: c10d waits for its first words without a limit.
    ///
    /// Asks for the address of the host again every few seconds: a process that was started again elsewhere has another one, and
    /// connecting to an address that nobody has takes the system minutes.
    pub(crate) fn open(host: &str, port: u16, join: Duration, timeout: Duration) -> Result<Self> {
        let until = Instant::now() + join;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let connect = left.min(TRY);
            match Self::open_within(host, port, connect, timeout) {
                Err(_) if left > connect => thread::sleep(PAUSE),
                opened => return opened,
            }
        }
    }

    fn open_within(host: &str, port: u16, connect: Duration, timeout: Duration) -> Result<Self> {
        let host = c_string(host)?;
        let (connect, timeout) = (milliseconds(connect), milliseconds(timeout));
        // SAFETY: the text lives during the call.
        made(|error| unsafe { grappa_store_open(host.as_ptr(), port, connect, timeout, error) }).map(Self)
    }

    pub(crate) fn set(&self, key: &str, value: &[u8]) -> Result<()> {
        let (store, key, length) = (self.0.as_ptr(), c_string(key)?, value.len());
        // SAFETY: key and value live during the call.
        finished(|error| unsafe { grappa_store_set(store, key.as_ptr(), value.as_ptr(), length, error) }).map(|_| ())
    }

    /// Sets a key that has no value yet. Returns the value that it then has: this one, or the earlier one.
    pub(crate) fn set_once(&self, key: &str, value: &[u8]) -> Result<Vec<u8>> {
        let (store, key, length) = (self.0.as_ptr(), c_string(key)?, value.len());
        let mut found = Vec::new();
        let context = ptr::from_mut(&mut found).cast();
        // SAFETY: key and value live during the call, and `take` gets the address of a vector.
        finished(|error| unsafe {
            grappa_store_set_once(store, key.as_ptr(), value.as_ptr(), length, context, take, error)
        })?;
        Ok(found)
    }

    /// The value of a key; none if it has no value yet.
    pub(crate) fn get(&self, key: &str) -> Result<Option<Vec<u8>>> {
        let (key, mut found) = (c_string(key)?, Vec::new());
        let context = ptr::from_mut(&mut found).cast();
        // SAFETY: the key lives during the call, and `take` gets the address of a vector.
        let has_value =
            finished(|error| unsafe { grappa_store_get(self.0.as_ptr(), key.as_ptr(), context, take, error) })?;
        Ok(has_value.then_some(found))
    }

    pub(crate) fn delete(&self, key: &str) -> Result<()> {
        let key = c_string(key)?;
        // SAFETY: the key lives during the call.
        finished(|error| unsafe { grappa_store_delete(self.0.as_ptr(), key.as_ptr(), error) }).map(|_| ())
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // SAFETY: it came from C++ and is freed once.
        unsafe { grappa_store_free(self.0.as_ptr()) }
    }
}

#[derive(Debug)]
pub(crate) struct Group {
    group: NonNull<c_void>,
    ranks: usize,
}

// SAFETY: it is moved between threads, never shared.
unsafe impl Send for Group {}

impl Group {
    /// Connects all ranks through `keys`. All must call it within `patience`. `timeout` is for each operation.
    pub(crate) fn connect(
        keys: Box<dyn Keys + Send + Sync>,
        rank: u32,
        size: u32,
        patience: Duration,
        timeout: Duration,
    ) -> Result<Self> {
        let Ok(ranks) = c_int::try_from(size) else {
            return Err(format!("{size} ranks are too many"));
        };
        let (rank, patience, timeout) = (rank as c_int, milliseconds(patience), milliseconds(timeout));
        // A pointer to a trait object has two words, and C++ gets one.
        let keys = Box::into_raw(Box::new(keys)).cast();
        // SAFETY: C++ calls these functions with the keys, and frees them once, even if it fails.
        let group = made(|error| unsafe {
            grappa_group_new(keys, set_key, get_key, free_keys, rank, ranks, patience, timeout, error)
        })?;
        Ok(Self { group, ranks: size as usize })
    }

    /// Starts to replace `tensor` by what `reduction` makes of the tensors of all ranks. The work keeps the memory of the tensor.
    pub(crate) fn all_reduce(&self, tensor: &Tensor, reduction: Reduction) -> Result<Work> {
        let (group, unites) = (self.group.as_ptr(), reduction == Reduction::Union);
        // SAFETY: both live during the call.
        made(|error| unsafe { grappa_all_reduce(group, tensor.as_ptr().cast(), unites, error) }).map(Work)
    }

    /// Gets ready to receive a part of `output` from each other rank. Parts follow each other by rank, with these numbers of values. They
    /// come by [`Group::send`] with the same `tag` on the other ranks. The part of this rank is not touched.
    ///
    /// # Panics
    /// If there is not one length per rank, or they do not add up to the length of `output`.
    pub(crate) fn receive(&self, output: &Tensor, values: &[i64], tag: u8) -> Result<Receives> {
        self.check(output, values);
        let (group, output) = (self.group.as_ptr(), output.as_ptr().cast());
        // SAFETY: both live during the call, and there are as many lengths as ranks.
        let receives = made(|error| unsafe { grappa_receive(group, output, values.as_ptr(), tag.into(), error) })?;
        Ok(Receives(receives, tag))
    }

    /// Starts to send a part of `input` to each other rank, or all of it without numbers of values. The work ends when all parts are sent,
    /// and the parts of `receives` have come. It keeps the memory of the tensors.
    ///
    /// # Panics
    /// As [`Group::receive`].
    pub(crate) fn send(&self, receives: Receives, input: &Tensor, values: Option<&[i64]>) -> Result<Work> {
        if let Some(values) = values {
            self.check(input, values);
        }
        let (group, input) = (self.group.as_ptr(), input.as_ptr().cast());
        let values = values.map_or(ptr::null(), <[i64]>::as_ptr);
        let Receives(receives, tag) = receives;
        // SAFETY: all live during the call, there are as many lengths as ranks or none, and C++ takes the receives.
        made(|error| unsafe { grappa_send(group, receives.as_ptr(), input, values, tag.into(), error) }).map(Work)
    }

    fn check(&self, tensor: &Tensor, values: &[i64]) {
        assert_eq!(values.len(), self.ranks, "a length per rank");
        assert_eq!([values.iter().sum::<i64>()], tensor.size()[..], "values of the parts");
    }
}

/// Posted receives, and their tag. They belong to [`Group::send`]. Those that never get there are leaked: messages may still come.
#[derive(Debug)]
pub(crate) struct Receives(NonNull<c_void>, u8);

impl Drop for Group {
    fn drop(&mut self) {
        // SAFETY: it came from C++ and is freed once.
        unsafe { grappa_group_free(self.group.as_ptr()) }
    }
}

/// How the values of all ranks become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reduction {
    /// They are added.
    Sum,
    /// Their bits are united. For integers only.
    Union,
}

/// An operation in progress.
#[derive(Debug)]
pub(crate) struct Work(NonNull<c_void>);

impl Work {
    /// Waits for the end of the operation, at most for a time. Returns whether it has ended.
    pub(crate) fn wait(&self, at_most: Duration) -> Result<bool> {
        // SAFETY: it lives.
        finished(|error| unsafe { grappa_work_wait(self.0.as_ptr(), milliseconds(at_most), error) })
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // SAFETY: it came from C++ and is freed once. The thread that works on it has a handle of its own.
        unsafe { grappa_work_free(self.0.as_ptr()) }
    }
}

/// The object that a function of C++ makes.
fn made(call: impl FnOnce(Problem) -> Object) -> Result<NonNull<c_void>> {
    let mut error = ptr::null_mut();
    NonNull::new(call(&mut error)).ok_or_else(|| taken(error))
}

/// Whether a function of C++ is done, or not yet.
fn finished(call: impl FnOnce(Problem) -> c_int) -> Result<bool> {
    let mut error = ptr::null_mut();
    match call(&mut error) {
        DONE => Ok(true),
        NOT_YET => Ok(false),
        _ => Err(taken(error)),
    }
}

/// The text of an error, which C++ gives away. One line: c10d appends advice and traces.
fn taken(error: *mut c_char) -> String {
    if error.is_null() {
        return "c10d gives no reason".to_owned();
    }
    // SAFETY: it is a text of C++ that ends with a zero, and freed once.
    let text = unsafe {
        let text = CStr::from_ptr(error).to_string_lossy().into_owned();
        grappa_free_text(error);
        text
    };
    let line = text.lines().next().unwrap_or_default();
    line.trim_end_matches(['.', ' ']).to_owned()
}

/// # Safety
/// `out` is the address of a `Vec<u8>` that nothing else uses; `length` bytes can be read at `bytes`.
unsafe extern "C" fn take(out: *mut c_void, bytes: *const u8, length: usize) {
    if length > 0 {
        // SAFETY: as promised.
        unsafe { (*out.cast::<Vec<u8>>()).extend_from_slice(slice::from_raw_parts(bytes, length)) }
    }
}

/// The keys of a group, which any thread of c10d may use.
type SharedKeys = Box<dyn Keys + Send + Sync>;

/// # Safety
/// `keys` is the address of [`SharedKeys`], `key` a text that ends with a zero; `length` bytes can be read at `value`; `take` may be called
/// with `context`.
unsafe extern "C" fn set_key(
    keys: *mut c_void,
    key: *const c_char,
    value: *const u8,
    length: usize,
    context: *mut c_void,
    take: Take,
) -> c_int {
    // SAFETY: as promised.
    let (keys, key) = unsafe { (&*keys.cast::<SharedKeys>(), CStr::from_ptr(key)) };
    let value = match length {
        0 => &[],
        // SAFETY: as promised.
        _ => unsafe { slice::from_raw_parts(value, length) },
    };
    match keys.set(&key.to_string_lossy(), value) {
        Ok(()) => DONE,
        Err(text) => {
            // SAFETY: as promised; the bytes live during the call.
            unsafe { take(context, text.as_ptr(), text.len()) };
            FAILED
        }
    }
}

/// # Safety
/// As [`set_key`].
unsafe extern "C" fn get_key(keys: *mut c_void, key: *const c_char, context: *mut c_void, take: Take) -> c_int {
    // SAFETY: as promised.
    let (keys, key) = unsafe { (&*keys.cast::<SharedKeys>(), CStr::from_ptr(key)) };
    let (code, bytes) = match keys.get(&key.to_string_lossy()) {
        Ok(Some(value)) => (DONE, value),
        Ok(None) => return NOT_YET,
        Err(text) => (FAILED, text.into_bytes()),
    };
    // SAFETY: as promised; the bytes live during the call.
    unsafe { take(context, bytes.as_ptr(), bytes.len()) };
    code
}

/// # Safety
/// `keys` is the address of a boxed [`SharedKeys`] that nothing uses any more.
unsafe extern "C" fn free_keys(keys: *mut c_void) {
    // SAFETY: as promised.
    drop(unsafe { Box::from_raw(keys.cast::<SharedKeys>()) });
}

fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| format!("{text:?} contains a zero byte"))
}

/// c10d counts in milliseconds and adds them to its clock, so a century has to do for ever.
fn milliseconds(time: Duration) -> i64 {
    const CENTURY_MS: i64 = 100 * 365 * 24 * 3600 * 1000;
    i64::try_from(time.as_millis()).unwrap_or(CENTURY_MS).min(CENTURY_MS)
}
