//! `grappa-train env`: the first thing to ask for when training does not start.

use grappa_console::Summary;
use grappa_trainer::runtime::{self, Cuda};
use serde::Serialize;

/// The version of libtorch and its devices on this machine.
#[derive(Serialize)]
pub struct Environment {
    libtorch: String,
    threads: usize,
    /// As `--device` takes them.
    devices: Vec<String>,
    /// Why CUDA can't be used; null if it can.
    cuda_unusable: Option<String>,
}

impl Environment {
    /// Loads libtorch, its CUDA half too, and asks.
    pub fn probe() -> Self {
        let (cuda_devices, cuda_unusable) = match runtime::cuda() {
            Cuda::Usable { devices } => (*devices, None),
            Cuda::Unusable { reason } => (0, Some(reason.clone())),
        };
        let mut devices = vec!["cpu".to_owned()];
        devices.extend((0..cuda_devices).map(|index| format!("cuda:{index}")));
        Self { libtorch: runtime::libtorch_version(), threads: runtime::threads(), devices, cuda_unusable }
    }
}

impl Summary for Environment {
    fn text(&self) -> String {
        let mut text =
            format!("libtorch {}, {} thread(s), devices: {}", self.libtorch, self.threads, self.devices.join(", "));
        if let Some(reason) = &self.cuda_unusable {
            text += &format!("\nCUDA can't be used: {reason}");
        }
        text
    }
}
