//! What all read engines promise, tried on each of them: on sound files, on machines that refuse, and in bad luck.
//!
//! ```text
//! bytes     whatever is asked for, in whatever order it comes, is what the files hold; or an error
//! limits    what a machine refuses is done without, and said once
//! ```

mod bytes;
mod common;
mod limits;
