//! The bytes that cross a network when two hosts train together, counted at the network interface: those of the
//! gradients, compressed or not.
//!
//! The hosts are network namespaces that a pair of virtual interfaces connects.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
};

use grappa_tests::program::{CommandWords, Ran};

use crate::fixture::{TrainFolder, metrics};

/// Two network namespaces, removed when they are dropped.
struct Hosts {
    names: [String; 2],
}

const INTERFACES: [&str; 2] = ["grappa-a", "grappa-b"];
const ADDRESSES: [&str; 2] = ["10.137.91.1", "10.137.91.2"];

impl Hosts {
    /// Creates them. The error is the reason why this machine does not permit it.
    fn new() -> Result<Self, String> {
        let names = ["a", "b"].map(|host| format!("grappa-{}-{host}", std::process::id()));
        for name in &names {
            ip(&["netns", "add", name])?;
        }
        let hosts = Self { names };
        let [a, b] = &hosts.names;
        let [first, second] = INTERFACES;
        ip(&[
            "-n", a, "link", "add", first, "type", "veth", "peer", "name", second, "netns", b,
        ])?;
        for ((name, interface), address) in hosts.names.iter().zip(INTERFACES).zip(ADDRESSES) {
            ip(&["-n", name, "address", "add", &format!("{address}/24"), "dev", interface])?;
            ip(&["-n", name, "link", "set", interface, "up"])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
        }
        Ok(hosts)
    }

    /// A command on a host.
    fn on(&self, host: usize) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[host]]);
        command
    }

    /// Bytes that a host has sent.
    fn sent_bytes(&self, host: usize) -> u64 {
        let file = format!("/sys/class/net/{}/statistics/tx_bytes", INTERFACES[host]);
        let output = self.on(host).args(["cat", &file]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().parse().unwrap()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            // A failed test leaves its own message.
            let _ = ip(&["netns", "delete", name]);
        }
    }
}

fn ip(args: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(args).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("ip cannot be started: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

fn rank(hosts: &Hosts, number: usize, folder: &Path, compress: &str) -> Child {
    let mut command = hosts.on(number);
    command
        .current_dir(folder)
        .arg(env!("CARGO_BIN_EXE_grappa-train"))
        .args(["graph.grappa", "--out", compress, "--threads", "1", "--quiet"])
        // Gradients of 1 MB.
        .words("--partitions 4 --hidden 4096 --layers 2 --epochs 1 --evaluate sampled --compress")
        .arg(compress)
        .env("RANK", number.to_string())
        .env("WORLD_SIZE", "2")
        .env("MASTER_ADDR", ADDRESSES[0])
        .env("MASTER_PORT", "29500")
        .env("GLOO_SOCKET_IFNAME", INTERFACES[number])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Trains on two hosts, and compares the bytes at their interfaces with those of the metrics. Returns the bytes of a
/// step.
fn train_on(hosts: &Hosts, folder: &Path, compress: &str) -> u64 {
    let before = [0, 1].map(|host| hosts.sent_bytes(host));
    let ranks = [0, 1].map(|number| rank(hosts, number, folder, compress));
    for child in ranks {
        Ran::from(child.wait_with_output().unwrap()).success();
    }
    let epochs = metrics(&folder.join(compress));
    let reported: u64 = epochs.iter().map(|epoch| epoch["bytes_sent"].as_u64().unwrap()).sum();
    let steps = epochs.last().unwrap()["step"].as_u64().unwrap();
    // What a rank keeps for its next gradient, 1 MB, goes to rank 0 for a checkpoint.
    let residual = if ["int8", "top-k"].contains(&compress) {
        1_200_000
    } else {
        0
    };
    for host in [0, 1] {
        let sent = hosts.sent_bytes(host) - before[host];
        // The encodings of a rank differ in length from those of the other, if they have no fixed length. And there are
        // headers, acknowledgements, and the messages of the store.
        let least = reported - reported / 100;
        let most = reported + reported / 20 + 100_000 + residual * host as u64;
        assert!(
            (least..most).contains(&sent),
            "{compress}: host {host} sent {sent} bytes, and {reported} of gradients"
        );
    }
    reported / steps
}

#[test]
fn only_gradients_cross_the_network_in_as_many_bytes_as_their_compression_leaves() {
    let hosts = match Hosts::new() {
        Ok(hosts) => hosts,
        Err(reason) => grappa_skip::skip!("network namespaces: {reason}"),
    };
    let folder = TrainFolder::new();
    let whole = train_on(&hosts, folder.root(), "none");
    assert!(whole > 1_000_000 / 2, "{whole}");
    for (compress, least, most) in [
        ("bf16", 0.5, 0.501),
        ("int8", 0.25, 0.252),
        ("top-k", 0.15, 0.17),
        ("lossless", 0.5, 0.95),
    ] {
        let share = train_on(&hosts, folder.root(), compress) as f64 / whole as f64;
        assert!((least..most).contains(&share), "{compress}: {share} of the bytes");
    }
}
