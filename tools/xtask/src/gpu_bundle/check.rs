//! Tries a tarball as a user without Rust would: unpacked, with few programs on the PATH, and libtorch found through Python only.

use std::{
    ffi::OsStr,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use anyhow::{Context, Result, bail, ensure};

use crate::{
    command::{output, program, run, target_folder},
    files::remove,
};

/// All programs that the tarball needs from the system, apart from Python.
const SYSTEM_PROGRAMS: [&str; 5] = ["sh", "env", "dirname", "readlink", "date"];

/// Libraries that a PyTorch without CUDA lacks.
const CUDA_LIBRARIES: [&str; 4] =
    ["libtorch_cuda.so", "libtorch_cuda_linalg.so", "libc10_cuda.so", "libtorch_nvshmem.so"];

/// The functions of NVML that gpu-check calls.
const NVML: &str = r#"
#include <string.h>
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) { *handle = &nvmlInit_v2; return index; }
int nvmlDeviceGetName(void *handle, char *name, unsigned length) { strncpy(name, "A GPU", length); return handle != &nvmlInit_v2; }
int nvmlDeviceGetUtilizationRates(void *handle, unsigned *rates) {
    static unsigned rate = 60;
    rates[0] = rate = 100 - rate;
    return handle != &nvmlInit_v2;
}
int nvmlDeviceGetMemoryInfo(void *handle, unsigned long long *bytes) { bytes[2] = 3ull << 30; return handle != &nvmlInit_v2; }
"#;

/// Samples that GPU four times.
const UTILIZATION: &str = "
import importlib.machinery, importlib.util, sys, time
loader = importlib.machinery.SourceFileLoader('gpu_check', sys.argv[1])
check = importlib.util.module_from_spec(importlib.util.spec_from_loader('gpu_check', loader))
loader.exec_module(check)
check.Gpu.watch = lambda gpu: None
gpu = check.Gpu()
for _ in range(3):
    gpu.sample()
now = time.monotonic()
print(f'{gpu.name}: ' + ', '.join(gpu.between(0, now)) + f'; {gpu.between(now, now)}')
";

/// Unpacks `tarball`, whose folder is `name`, and tries it with the libtorch in `libtorch`.
pub fn check(tarball: &Path, name: &str, libtorch: &Path) -> Result<()> {
    // Users' folders may have spaces.
    let work = target_folder().join("gpu-bundle").join("unpacked here");
    remove(&work)?;
    fs::create_dir_all(&work).with_context(|| format!("cannot create {}", work.display()))?;
    run(program("tar").arg("--extract").arg("--file").arg(tarball).arg("--directory").arg(&work))?;
    let machine = Machine::new(&work, name, libtorch)?;
    machine.check_programs()?;
    machine.check_errors()?;
    machine.check_pytorch_without_cuda()?;
    machine.check_utilization()?;
    machine.check_gpu_check()?;
    remove(&work)
}

/// The machine of a user, in a folder.
struct Machine {
    work: PathBuf,
    /// The unpacked folder.
    root: PathBuf,
    /// PATH.
    programs: PathBuf,
    /// A folder that Python imports from, with PyTorch.
    packages: PathBuf,
    /// The `torch` folder, without links.
    torch: PathBuf,
}

impl Machine {
    fn new(work: &Path, name: &str, libtorch: &Path) -> Result<Self> {
        let machine = Self {
            work: work.to_owned(),
            root: work.join(name),
            programs: work.join("programs"),
            packages: work.join("packages"),
            torch: fs::canonicalize(libtorch).with_context(|| format!("cannot find {}", libtorch.display()))?,
        };
        fs::create_dir_all(&machine.programs)?;
        for name in SYSTEM_PROGRAMS {
            let path = output(program("sh").args(["-c", &format!("command -v {name}")]))?;
            symlink(path, machine.programs.join(name))?;
        }
        // The `python3` on the PATH may be a script of a version manager.
        let python = output(program("python3").args(["-c", "import sys; print(sys.executable)"]))?;
        let script = |name: &str, options: &str| {
            let path = machine.programs.join(name);
            fs::write(&path, format!("#!/bin/sh\nexec '{python}' {options} \"$@\"\n"))?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
        };
        script("python3", "")?;
        script("python-without-packages", "-S -E")?;
        fs::create_dir_all(&machine.packages)?;
        symlink(&machine.torch, machine.packages.join("torch"))?;
        Ok(machine)
    }

    /// A program of the tarball in an environment without Rust and libtorch.
    fn program(&self, name: &str) -> Command {
        self.command(&self.root.join("bin").join(name))
    }

    /// A command in that environment.
    fn command(&self, path: &Path) -> Command {
        let mut command = program(path);
        command.current_dir(&self.work).env_clear();
        command
            .env("PATH", &self.programs)
            .env("HOME", &self.work)
            .env("PYTHONPATH", &self.packages)
            .env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    fn check_programs(&self) -> Result<()> {
        let cora = self.root.join("share/cora");
        let mut ingest = self.program("grappa-ingest");
        ingest.args(["--undirected", "--dedup", "--quiet", "--out", "cora.grappa"]);
        for (option, file) in [
            ("--edges", "edges.tsv"),
            ("--features", "features.npz"),
            ("--labels", "labels.npy"),
            ("--train", "train.npy"),
            ("--val", "val.npy"),
            ("--test", "test.npy"),
        ] {
            ingest.arg(option).arg(cora.join(file));
        }
        run(&mut ingest)?;
        let run_in = |name: &str, args: &str| run(self.program(name).args(args.split_whitespace()));
        run_in("grappa-gen", "sbm --nodes 2000 --classes 4 --feature-dim 8 --quiet --out sbm.grappa")?;
        run_in("grappa-store", "verify sbm.grappa --quiet")?;
        run_in("grappa-train", "sbm.grappa --epochs 1 --hidden 8 --quiet --out sbm-run")?;
        run_in("grappa-train", "cora.grappa --partitions 4 --epochs 2 --hidden 16 --quiet --out run")?;
        run_in("grappa-train", "predict run cora.grappa --nodes 0,1000")
    }

    /// Checks that each reason why libtorch is not found is named with a remedy.
    fn check_errors(&self) -> Result<()> {
        let without_python = self.work.join("programs-without-python");
        fs::create_dir_all(&without_python)?;
        for name in SYSTEM_PROGRAMS {
            symlink(self.programs.join(name), without_python.join(name))?;
        }
        let other_version = self.work.join("packages-of-another-version");
        fs::create_dir_all(other_version.join("torch"))?;
        fs::write(other_version.join("torch/__init__.py"), "")?;
        fs::write(other_version.join("torch/version.py"), "__version__ = '2.9.1+cpu'\n")?;
        for (variable, value, message) in [
            ("PATH", without_python.as_os_str(), "cannot find the Python `python3`"),
            ("GRAPPA_PYTHON", OsStr::new("no-such-python"), "cannot find the Python `no-such-python`"),
            ("GRAPPA_PYTHON", OsStr::new("python-without-packages"), "has no PyTorch"),
            ("PYTHONPATH", other_version.as_os_str(), "is PyTorch 2.9.1, and grappa-train needs PyTorch 2.11"),
        ] {
            let output = self.program("grappa-train").arg("env").env(variable, value).output()?;
            expect_failure(&output, &[message, "error: ", "GRAPPA_PYTHON"])?;
        }
        Ok(())
    }

    /// Checks how gpu-check measures the utilization of a GPU, with an NVML that reports 40 and 60 % in turns.
    fn check_utilization(&self) -> Result<()> {
        let libraries = self.work.join("libraries");
        fs::create_dir_all(&libraries)?;
        fs::write(libraries.join("nvml.c"), NVML)?;
        run(program("cc")
            .args(["-shared", "-fPIC", "-o"])
            .args([libraries.join("libnvidia-ml.so.1"), libraries.join("nvml.c")]))?;
        let mut python = self.command(&self.programs.join("python3"));
        python.env("LD_LIBRARY_PATH", &libraries);
        let told = output(python.args(["-c", UTILIZATION]).arg(self.root.join("bin/gpu-check")))?;
        ensure!(told == "A GPU: 50 %, 60 %, 3.0 GiB; None", "found `{told}`");
        Ok(())
    }

    /// Checks that a PyTorch without CUDA is enough for the processor.
    fn check_pytorch_without_cuda(&self) -> Result<()> {
        let packages = self.work.join("packages-without-cuda");
        let lib = packages.join("torch/lib");
        fs::create_dir_all(&lib)?;
        for entry in fs::read_dir(self.torch.join("lib"))? {
            let entry = entry?;
            if !CUDA_LIBRARIES.iter().any(|name| entry.file_name() == *name) {
                symlink(entry.path(), lib.join(entry.file_name()))?;
            }
        }
        symlink(self.torch.join("version.py"), packages.join("torch/version.py"))?;
        fs::write(packages.join("torch/__init__.py"), "")?;
        // libtorch finds CUDA's runtime, which this build of it needs anyway, relative to its folder.
        symlink(self.torch.with_file_name("nvidia"), packages.join("nvidia"))?;
        let told = output(self.program("grappa-train").arg("env").env("PYTHONPATH", &packages))?;
        ensure!(
            told.contains("devices: cpu\n") && told.contains("libtorch_cuda.so"),
            "expected no CUDA, and libtorch_cuda.so as the reason: {told}"
        );
        Ok(())
    }

    fn check_gpu_check(&self) -> Result<()> {
        run(self.program("gpu-check").args(["--cpu", "--scales", "12", "--record", "record.md"]))?;
        let record = fs::read_to_string(self.work.join("record.md")).context("gpu-check wrote no record")?;
        for stage in ["tests", "training, R-MAT 12", "training out of core, f16, R-MAT 12", "feed, R-MAT 12"] {
            ensure!(record.contains(&format!("| {stage} | ok")), "expected the stage `{stage}` in {record}");
        }
        let hurried = self.program("gpu-check").args(["--cpu", "--minutes", "0.03"]).output()?;
        let told = String::from_utf8_lossy(&hurried.stdout);
        ensure!(
            hurried.status.code() == Some(1) && told.contains("| tests | out of time: it takes longer than 1 s |"),
            "expected a stage without enough time, found {}: {told}",
            hurried.status
        );
        let has_gpu = output(self.program("grappa-train").args(["env", "--json"]))?.contains("cuda:0");
        if !has_gpu {
            let output = self.program("gpu-check").output()?;
            expect_failure(&output, &["error: no GPU was found", "--cpu"])?;
        }
        Ok(())
    }
}

/// Checks that a program failed and that its stderr contains all of `messages`.
fn expect_failure(output: &Output, messages: &[&str]) -> Result<()> {
    let told = String::from_utf8_lossy(&output.stderr);
    if output.status.code() != Some(1) || !messages.iter().all(|message| told.contains(message)) {
        bail!("expected exit code 1 and {messages:?}, found {}: {told}", output.status);
    }
    println!("as expected: {}", told.trim_end());
    Ok(())
}
