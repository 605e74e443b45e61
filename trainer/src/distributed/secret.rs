//! The secret that the ranks of a job share.

use std::{
    fmt,
    fs::File,
    io::{self, Read},
};

use sha2::{Digest, Sha256};

use crate::{Error, Result};

/// The variable that has the secret.
pub const SECRET: &str = "GRAPPA_SECRET";

/// A shorter secret could be guessed by whoever sees a greeting.
const CHARACTERS_MIN: usize = 16;

/// What the ranks of a job know and others do not. An empty text if they were given none.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// A number that nobody can foresee.
pub(super) type Nonce = [u8; 32];

/// Shows that an end of a connection knows the secret.
pub(super) type Proof = [u8; 32];

/// The end of a connection that a proof is for, so that neither end can repeat the proof of the other.
#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    Server = 0,
    Client = 1,
}

impl Secret {
    /// The secret that a variable gives, or none.
    pub(super) fn from_variable(text: Option<&str>) -> Result<Self> {
        match text {
            None => Ok(Self(String::new())),
            Some(text) if text.chars().count() >= CHARACTERS_MIN => Ok(Self(text.to_owned())),
            Some(text) => Err(Error::Distributed(format!(
                "{SECRET} has {} characters, and needs {CHARACTERS_MIN} or more: make one with `openssl rand -hex 16` and give it to all \
                 ranks, or unset {SECRET}",
                text.chars().count()
            ))),
        }
    }

    pub(super) fn random() -> io::Result<Self> {
        Ok(Self(random()?.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    pub(super) fn text(&self) -> &str {
        &self.0
    }

    /// The proof for an end of a connection whose ends drew these numbers. All inputs have a fixed length, so a plain hash will do.
    pub(super) fn proof(&self, end: End, client: &Nonce, server: &Nonce) -> Proof {
        let mut hash = Sha256::new();
        hash.update(Sha256::digest(&self.0));
        hash.update([end as u8]);
        hash.update(client);
        hash.update(server);
        hash.finalize().into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

pub(super) fn random() -> io::Result<Nonce> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Whether two proofs are equal, in a time that does not tell where they differ.
pub(super) fn are_equal(one: &Proof, other: &Proof) -> bool {
    one.iter().zip(other).fold(0, |differ, (one, other)| differ | (one ^ other)) == 0
}
