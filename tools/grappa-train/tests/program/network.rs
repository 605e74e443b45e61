//! The bytes that cross a network when two hosts train together, counted at the network interface: gradients, compressed or not, and with
//! `full` and `varco` states and their gradients.
//!
//! The hosts are network namespaces that a pair of virtual interfaces connects.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
};

use grappa_tests::program::{CommandWords, Ran};
use serde_json::Value;

use crate::fixture::{TrainFolder, metrics};

/// Two network namespaces, removed when they are dropped.
struct Hosts {
    names: [String; 2],
}

const INTERFACES: [&str; 2] = ["grappa-a", "grappa-b"];
const ADDRESSES: [&str; 2] = ["10.137.91.1", "10.137.91.2"];

impl Hosts {
    /// Creates them for a test. The error is the reason why this machine does not permit it.
    fn new(test: &str) -> Result<Self, String> {
        let names = ["a", "b"].map(|host| format!("grappa-{}-{test}-{host}", std::process::id()));
        for name in &names {
            ip(&["netns", "add", name])?;
        }
        let hosts = Self { names };
        let [a, b] = &hosts.names;
        let [first, second] = INTERFACES;
        ip(&["-n", a, "link", "add", first, "type", "veth", "peer", "name", second, "netns", b])?;
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
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()) }
}

fn rank(hosts: &Hosts, number: usize, folder: &Path, out: &str, options: &str) -> Child {
    let mut command = hosts.on(number);
    command
        .current_dir(folder)
        .arg(env!("CARGO_BIN_EXE_grappa-train"))
        .args(["graph.grappa", "--out", out, "--threads", "1", "--quiet"])
        .words(options)
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

/// Trains on two hosts. Returns the bytes that each sent.
fn train_on(hosts: &Hosts, folder: &Path, out: &str, options: &str) -> [u64; 2] {
    let before = [0, 1].map(|host| hosts.sent_bytes(host));
    let ranks = [0, 1].map(|number| rank(hosts, number, folder, out, options));
    for child in ranks {
        Ran::from(child.wait_with_output().unwrap()).success();
    }
    [0, 1].map(|host| hosts.sent_bytes(host) - before[host])
}

/// The sum of a metric over all epochs.
fn total(epochs: &[Value], key: &str) -> u64 {
    epochs.iter().map(|epoch| epoch[key].as_u64().unwrap()).sum()
}

/// Trains on two hosts, and compares the bytes at their interfaces with the bytes in the metrics. Returns the bytes of a
/// step.
fn train_compressed(hosts: &Hosts, folder: &Path, compress: &str) -> u64 {
    // Gradients of 1 MB.
    let options =
        format!("--partitions 4 --hidden 4096 --layers 2 --epochs 1 --evaluate sampled --compress {compress}");
    let sent = train_on(hosts, folder, compress, &options);
    let epochs = metrics(&folder.join(compress));
    let reported = total(&epochs, "bytes_sent");
    let steps = epochs.last().unwrap()["step"].as_u64().unwrap();
    // What a rank keeps for its next gradient, 1 MB, goes to rank 0 for a checkpoint.
    let residual = if ["int8", "top-k"].contains(&compress) { 1_200_000 } else { 0 };
    for host in [0, 1] {
        let sent = sent[host];
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
    let hosts = match Hosts::new("gradients") {
        Ok(hosts) => hosts,
        Err(reason) => grappa_skip::skip!("network namespaces: {reason}"),
    };
    let folder = TrainFolder::new();
    let whole = train_compressed(&hosts, folder.root(), "none");
    assert!(whole > 1_000_000 / 2, "{whole}");
    for (compress, least, most) in
        [("bf16", 0.5, 0.501), ("int8", 0.25, 0.252), ("top-k", 0.15, 0.17), ("lossless", 0.5, 0.95)]
    {
        let share = train_compressed(&hosts, folder.root(), compress) as f64 / whole as f64;
        assert!((least..most).contains(&share), "{compress}: {share} of the bytes");
    }
}

#[test]
fn states_of_boundary_nodes_cross_the_network_in_as_many_bytes_as_are_counted() {
    let hosts = match Hosts::new("states") {
        Ok(hosts) => hosts,
        Err(reason) => grappa_skip::skip!("network namespaces: {reason}"),
    };
    let folder = TrainFolder::new();
    let mut activations = Vec::new();
    for (number, method) in ["full", "varco --rate-schedule fixed:4", "varco --rate-schedule fixed:4 --rate-unit row"]
        .into_iter()
        .enumerate()
    {
        let out = format!("method-{number}");
        // Two partitions, so that each boundary node crosses the network.
        let options = format!("--method {method} --partitions 2 --hidden 256 --layers 3 --epochs 3");
        let sent: u64 = train_on(&hosts, folder.root(), &out, &options).iter().sum();
        let epochs = metrics(&folder.path(&out));
        let [of_features, of_activations, of_gradients] =
            ["feature_bytes", "activation_bytes", "bytes_sent"].map(|key| total(&epochs, key));
        let counted = of_features + of_activations + 2 * of_gradients;
        assert!(of_activations > 4_000_000, "{method}: {of_activations}");
        // Besides, there are headers, acknowledgements, and the messages of the store.
        let most = counted + counted / 20 + 200_000;
        assert!(
            (counted..most).contains(&sent),
            "{method}: both hosts sent {sent} bytes; {of_features} of features, {of_activations} of activations and \
             twice {of_gradients} of gradients are counted"
        );
        activations.push(of_activations);
    }
    for of_varco in &activations[1..] {
        let share = *of_varco as f64 / activations[0] as f64;
        assert!((0.25..0.2505).contains(&share), "{share}");
    }
}
