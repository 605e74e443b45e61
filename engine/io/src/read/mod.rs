//! Asynchronous file reads: many reads in flight, each into a buffer that the engine owns.
//!
//! A caller submits a batch of [`Read`]s, continues with other work, and takes completions in any order. The engine
//! owns a buffer from the submission until the caller has seen the completion. So the kernel never writes into freed
//! memory, whatever a caller drops or forgets.
//!
//! - [`uring`]: io_uring, bypassing the page cache. Large stores are read with it;
//! - [`pread`]: blocking threads, through the page cache. It is the reference, and the fallback where io_uring is
//!   refused;
//! - [`fault`]: fault injection, for tests.
//!
//! All engines return the same bytes.

pub mod fault;
mod files;
mod options;
pub mod pread;
mod request;
mod transfer;
pub mod uring;

use std::sync::{Arc, Once};

pub use self::{
    files::ReadFile,
    options::{DEPTH_MAX, Options, READ_BYTES_MAX, ReadEngine},
    request::{FileIndex, Read},
};
use self::{pread::Pread, uring::Uring};
use crate::{Error, Result};

/// The choice of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// io_uring, or pread if the kernel or a container refuses io_uring.
    #[default]
    Auto,
    /// io_uring, or an error.
    Uring,
    /// A pool of threads.
    Pread,
}

/// Makes an engine that reads `files`. A [`FileIndex`] is an index into this list.
///
/// If io_uring is refused, [`Choice::Auto`] logs the reason once and uses threads. Keep the list too: after reading,
/// [`ReadFile::check_unchanged`] tells whether the files changed meanwhile.
///
/// # Errors
/// If an option is out of range, a file cannot be opened or has changed, or [`Choice::Uring`] is refused.
pub fn open(choice: Choice, files: Arc<[ReadFile]>, options: Options) -> Result<Box<dyn ReadEngine>> {
    static TOLD: Once = Once::new();
    if choice == Choice::Pread {
        return Ok(Box::new(Pread::new(files, options)?));
    }
    match Uring::new(files.clone(), options.clone())? {
        Ok(engine) => Ok(Box::new(engine)),
        Err(refusal) if choice == Choice::Uring => Err(Error::Unsupported {
            capability: "io_uring",
            cause: refusal.to_string(),
            remedy: "or read with threads (pread), which is slower",
        }),
        Err(refusal) => {
            TOLD.call_once(|| tracing::warn!("io_uring is refused: {refusal}; threads read instead, which is slower"));
            Ok(Box::new(Pread::new(files, options)?))
        }
    }
}
