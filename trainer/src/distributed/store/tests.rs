//! The store, and what others do to it.

use std::{
    io::{self, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use super::{
    greeting::{Failure, answer},
    *,
};
use crate::distributed::{place::Place, secret::Secret, store::request::VALUE_BYTES_MAX};

const TIMEOUT: Duration = Duration::from_secs(30);

fn open(server: &StoreServer) -> Store {
    Store::open(&server.place(0, 1), None, TIMEOUT, TIMEOUT).unwrap()
}

#[test]
fn ranks_share_keys() {
    let server = StoreServer::start().unwrap();
    let [one, other] = [open(&server).within("a"), open(&server).within("a")];
    assert_eq!(one.get("key").unwrap(), None);
    one.set("key", b"value").unwrap();
    assert_eq!(other.get("key").unwrap().unwrap(), b"value");
    assert_eq!(other.within("b").get("key").unwrap(), None);
    assert_eq!(one.set_once("first", b"1").unwrap(), b"1");
    assert_eq!(other.set_once("first", b"2").unwrap(), b"1");
    one.set("key", b"").unwrap();
    assert_eq!(other.get("key").unwrap(), Some(Vec::new()));
    other.delete("key").unwrap();
    assert_eq!(one.get("key").unwrap(), None);
    let long = vec![7; VALUE_BYTES_MAX];
    one.set("long", &long).unwrap();
    assert_eq!(other.get("long").unwrap().unwrap(), long);
    let error = one.set("long", &vec![7; VALUE_BYTES_MAX + 1]).unwrap_err();
    assert!(error.contains("too long"), "{error}");
    // Nothing was sent, so the connection is fine.
    assert_eq!(one.get("first").unwrap().unwrap(), b"1");
}

#[test]
fn a_store_that_stops_answering_is_an_error_within_the_time_without_signs_of_life() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let secret = Secret::from_variable(None).unwrap();
    let place = Place {
        store: ("127.0.0.1".into(), listener.local_addr().unwrap().port()),
        secret: secret.clone(),
        ..StoreServer::start().unwrap().place(1, 2)
    };
    thread::scope(|scope| {
        let served = scope.spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            answer(&stream, &secret, Instant::now() + TIMEOUT).unwrap();
            stream
        });
        let store = Store::open(&place, None, TIMEOUT, Duration::from_millis(200)).unwrap();
        let _silent = served.join().unwrap();
        let begin = Instant::now();
        let error = store.get("key").unwrap_err();
        assert!(error.contains("does not answer for 0.2 s"), "{error}");
        // A late answer would be taken for the answer to another request.
        let error = store.get("key").unwrap_err();
        assert!(error.contains("is lost"), "{error}");
        assert!(begin.elapsed() < TIMEOUT);
    });
}

/// Lets a server answer what a client says before it hears it. Returns the failure of the server.
fn failure(secret: &Secret, said: &[u8]) -> Failure {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.write_all(said).unwrap();
    let (stream, _) = listener.accept().unwrap();
    answer(&stream, secret, Instant::now() + Duration::from_millis(300)).unwrap_err()
}

#[test]
fn a_greeting_is_refused_at_its_first_wrong_byte_and_has_to_end_in_time() {
    let secret = Secret::random().unwrap();
    assert!(matches!(failure(&secret, b"GET / HTTP/1.1\r\n"), Failure::Stranger));
    assert!(matches!(failure(&secret, b"grappa-store 2"), Failure::Stranger));
    for said in [&b""[..], b"grappa", b"grappa-store 1\r\n"] {
        let failure = failure(&secret, said);
        assert!(matches!(&failure, Failure::Io(error) if error.kind() == io::ErrorKind::TimedOut), "{failure:?}");
    }
    let guessed = [&b"grappa-store 1\r\n"[..], &[1; 64]].concat();
    assert!(matches!(failure(&secret, &guessed), Failure::OtherSecret));
}

#[test]
fn a_rank_does_not_talk_to_a_store_with_another_secret() {
    let server = StoreServer::start().unwrap();
    let place = Place { secret: Secret::random().unwrap(), ..server.place(1, 2) };
    let error = Store::open(&place, None, TIMEOUT, TIMEOUT).unwrap_err().to_string();
    assert!(error.contains("have different secrets"), "{error}");
    let begin = Instant::now();
    while server.refused().is_none() {
        assert!(begin.elapsed() < TIMEOUT, "the server does not notice");
        thread::sleep(Duration::from_millis(5));
    }
    let refused = server.refused().unwrap();
    assert!(refused.contains("another secret (GRAPPA_SECRET)"), "{refused}");
}
