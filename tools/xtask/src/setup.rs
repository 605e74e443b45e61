//! `cargo xtask setup`: libtorch, where .cargo/config.toml says it is.
//!
//! `.libtorch/torch` becomes a link to the `torch` folder of PyTorch's wheel, which has all of libtorch: that of a
//! PyTorch which the machine already has, or else one that pip installs into `.libtorch/venv`. The link is made last, so
//! what an interrupted setup leaves behind is completed by the next.
//!
//! For training on the processor the wheel is installed without its dependencies, most of which are CUDA libraries,
//! except the two small ones that libtorch_cpu.so links to: 1.3 GB instead of 4.6.

use std::{
    env, fs,
    io::ErrorKind,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};

use crate::command::{output, program, root, run};

/// The version that the crate `tch` binds.
const VERSION: &str = "2.11.0";

/// Without CUDA, these alone.
const CPU_PACKAGES: [&str; 3] = [
    "torch==2.11.0",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cuda-cupti==13.0.85",
];

/// Makes sure that libtorch is there and returns its folder. Does nothing, quickly, if it is.
pub fn setup(cuda: bool) -> Result<PathBuf> {
    require_cxx_compiler()?;
    let folder = root().join(".libtorch");
    let link = folder.join("torch");

    // Cargo sets LIBTORCH to the link unless the user has set it; then builds use what the user says.
    if let Some(own) = env::var_os("LIBTORCH").map(PathBuf::from).filter(|own| *own != link) {
        match version(&own) {
            Some(found) if found == VERSION => {}
            Some(found) => bail!(
                "LIBTORCH names libtorch {found}, needed is {VERSION}: unset it, or let it name a folder with that version"
            ),
            None => bail!("LIBTORCH={} is no libtorch: unset it, or correct it", own.display()),
        }
        return Ok(own);
    }
    if is_right(&link) && (!cuda || has_cuda_libraries(&link)) {
        return Ok(link);
    }

    fs::create_dir_all(&folder).context("cannot create .libtorch")?;
    let torch = match torch_of_machine(cuda) {
        Some(torch) => torch,
        None => install(&folder.join("venv"), cuda)?,
    };
    point(&link, &torch)?;
    Ok(link)
}

/// `tch` compiles a C++ wrapper of libtorch.
fn require_cxx_compiler() -> Result<()> {
    let compiler = env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    match program(&compiler).arg("--version").stdout(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        _ => bail!("no C++ compiler (`{compiler}`): install g++ or clang, or name one in CXX"),
    }
}

/// The version of the libtorch in a folder, from its headers.
fn version(libtorch: &Path) -> Option<String> {
    let text = fs::read_to_string(libtorch.join("include/torch/headeronly/version.h")).ok()?;
    let part = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix("#define TORCH_VERSION_")?.strip_prefix(name))
            .map(str::trim)
    };
    Some(format!("{}.{}.{}", part("MAJOR")?, part("MINOR")?, part("PATCH")?))
}

fn is_right(libtorch: &Path) -> bool {
    version(libtorch).as_deref() == Some(VERSION) && libtorch.join("lib/libtorch_cpu.so").exists()
}

/// Whether the libraries that libtorch_cuda.so links to were installed beside it. (They include cuDNN, which nothing
/// else brings.)
fn has_cuda_libraries(libtorch: &Path) -> bool {
    libtorch.join("../nvidia/cudnn/lib").exists()
}

/// The PyTorch that `python3` would import, if it is the right one and its libtorch loads, with CUDA if that is wanted.
fn torch_of_machine(cuda: bool) -> Option<PathBuf> {
    let script = "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])";
    let torch = PathBuf::from(output(program("python3").args(["-c", script])).ok()?);
    let library = if cuda { "libtorch_cuda.so" } else { "libtorch_cpu.so" };
    (is_right(&torch) && load(Path::new("python3"), &torch, library).is_ok()).then_some(torch)
}

/// Loads a library of libtorch, which fails if one that it needs is not there.
fn load(python: &Path, torch: &Path, library: &str) -> Result<()> {
    let script = "import ctypes, sys; ctypes.CDLL(sys.argv[1])";
    output(
        program(python)
            .args(["-c", script])
            .arg(torch.join("lib").join(library)),
    )
    .map(drop)
}

/// Installs PyTorch's wheel with pip and returns the `torch` folder.
pub fn install(venv: &Path, cuda: bool) -> Result<PathBuf> {
    let python = venv.join("bin/python3");
    let pip_works = || output(program(&python).args(["-m", "pip", "--version"])).is_ok();
    if !pip_works() {
        output(program("python3").arg("--version"))
            .context("Python 3 is needed to fetch libtorch: install python3 (with its venv module)")?;
        run(program("python3").args(["-m", "venv", "--clear"]).arg(venv))
            .context("cannot make a virtual environment: install Python's venv module (Debian: python3-venv)")?;
        ensure!(
            pip_works(),
            "the virtual environment in .libtorch/venv has no pip: install Python's ensurepip"
        );
    }

    let mut command = pip(&python);
    if cuda {
        command.arg(CPU_PACKAGES[0]);
    } else {
        command.arg("--no-deps").args(CPU_PACKAGES);
    }
    run(&mut command).with_context(|| {
        format!("cannot install PyTorch {VERSION}: it needs Linux, a Python that PyTorch has a wheel for, and a package index")
    })?;

    let script = "import sysconfig; print(sysconfig.get_path('platlib'))";
    let torch = PathBuf::from(output(program(&python).args(["-c", script]))?).join("torch");
    ensure!(
        is_right(&torch),
        "pip installed no libtorch {VERSION} in {}",
        torch.display()
    );
    load(&python, &torch, "libtorch_cpu.so").context("libtorch was installed, but does not load")?;
    Ok(torch)
}

/// `pip install` of a Python, to which packages are added.
pub fn pip(python: &Path) -> Command {
    let mut pip = program(python);
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-compile",
        "--disable-pip-version-check",
    ]);
    pip
}

/// Makes `link` point to `target`, whatever it was before; there is no moment without it.
fn point(link: &Path, target: &Path) -> Result<()> {
    let temporary = link.with_extension("new");
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).context("cannot remove .libtorch/torch.new");
        }
        _ => {}
    }
    // Relative where it can be, so that the checkout can be moved.
    let folder = link.parent().expect("the link is in a folder");
    let target = target.strip_prefix(folder).unwrap_or(target);
    symlink(target, &temporary).context("cannot create .libtorch/torch.new")?;
    fs::rename(&temporary, link).context("cannot replace .libtorch/torch")
}
