//! The first bytes of a connection to the store.
//!
//! ```text
//! client    MAGIC, 32 random bytes
//! server    MAGIC, 32 random bytes, its proof
//! client    its proof
//! server    WELCOME
//! ```
//!
//! A proof is a hash of the secret and of the random bytes of both ends, so the secret itself is never sent, and a proof that somebody saw
//! is of no use. The greeting protects itself only: what follows is neither encrypted nor authenticated.

use std::{io, net::TcpStream, time::Instant};

use super::timed::{read_until, write_until};
use crate::distributed::secret::{End, Nonce, Proof, Secret, are_equal, random};

/// The name and the version of the protocol. Another version of the messages needs another number.
const MAGIC: [u8; 16] = *b"grappa-store 1\r\n";
/// The byte that ends a greeting.
const WELCOME: u8 = b'w';

#[derive(Debug)]
pub(super) enum Failure {
    /// The other end is another program, or another version of this one.
    Stranger,
    /// The other end has another secret.
    OtherSecret,
    Io(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

pub(super) fn greet(stream: &TcpStream, secret: &Secret, until: Instant) -> Result<(), Failure> {
    let client = random()?;
    write_until(stream, &[&MAGIC[..], &client].concat(), until)?;
    let server = hear(stream, until)?;
    let mut proof: Proof = [0; 32];
    read_until(stream, &mut proof, until)?;
    // The server learns in any case what is wrong.
    write_until(stream, &secret.proof(End::Client, &client, &server), until)?;
    if !are_equal(&proof, &secret.proof(End::Server, &client, &server)) {
        return Err(Failure::OtherSecret);
    }
    let mut welcome = [0];
    read_until(stream, &mut welcome, until)?;
    if welcome != [WELCOME] { Err(Failure::Stranger) } else { Ok(()) }
}

/// Answers the greeting of a client.
pub(super) fn answer(stream: &TcpStream, secret: &Secret, until: Instant) -> Result<(), Failure> {
    let client = hear(stream, until)?;
    let server = random()?;
    let proof = secret.proof(End::Server, &client, &server);
    write_until(stream, &[&MAGIC[..], &server, &proof].concat(), until)?;
    let mut proof: Proof = [0; 32];
    read_until(stream, &mut proof, until)?;
    if !are_equal(&proof, &secret.proof(End::Client, &client, &server)) {
        return Err(Failure::OtherSecret);
    }
    Ok(write_until(stream, &[WELCOME], until)?)
}

/// Reads the magic and the number of the other end. A stranger is noticed at its first wrong byte.
fn hear(stream: &TcpStream, until: Instant) -> Result<Nonce, Failure> {
    for expected in MAGIC {
        let mut byte = [0];
        read_until(stream, &mut byte, until)?;
        if byte != [expected] {
            return Err(Failure::Stranger);
        }
    }
    let mut nonce: Nonce = [0; 32];
    read_until(stream, &mut nonce, until)?;
    Ok(nonce)
}
