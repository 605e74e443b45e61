//! `cargo xtask setup`: libtorch, where .cargo/config.toml says it is.
//!
//! PyTorch's wheel contains libtorch. `.libtorch/torch` is a link to the `torch` folder of a wheel: of a PyTorch that
//! `python3` can import, or else of one that pip installs below `.libtorch`. The link is made last, so an interrupted setup
//! is completed by the next one.
//!
//! | | where | size |
//! |---|---|---|
//! | training on the processor | `.libtorch/wheels`, a folder that no Python imports from | 1.3 GB |
//! | training on a GPU (`--cuda`) | `.libtorch/venv`, a virtual environment that can `import torch` | 4.6 GB |
//!
//! The package index has one wheel for both, and Python cannot import it without its CUDA libraries (cuDNN and others, 3.3
//! GB). libtorch_cpu.so needs only two small ones of them, so the processor gets the wheel without the rest, and no
//! virtual environment that would look usable.

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

/// The wheels that libtorch_cpu.so needs.
const CPU_PACKAGES: [&str; 3] = ["torch==2.11.0", "nvidia-cuda-runtime==13.0.96", "nvidia-cuda-cupti==13.0.85"];

/// Makes sure that libtorch is there and returns its folder. Returns at once if it is.
pub fn setup(cuda: bool) -> Result<PathBuf> {
    require_cxx_compiler()?;
    let folder = root().join(".libtorch");
    let link = folder.join("torch");

    // Cargo sets LIBTORCH to the link unless the user has set it.
    if let Some(own) = env::var_os("LIBTORCH").map(PathBuf::from).filter(|own| *own != link) {
        match version(&own) {
            Some(found) if found == VERSION => {}
            Some(found) => bail!(
                "LIBTORCH is a folder with libtorch {found}, but {VERSION} is needed: unset it, or set it to a folder with that \
                 version"
            ),
            None => bail!("LIBTORCH={} does not contain libtorch: unset it, or correct it", own.display()),
        }
        return Ok(own);
    }
    if is_right(&link) && (!cuda || has_cuda_libraries(&link)) {
        return Ok(link);
    }

    fs::create_dir_all(&folder).context("cannot create .libtorch")?;
    let venv = folder.join("venv");
    let torch =
        match [Path::new("python3"), &venv.join("bin/python3")].into_iter().find_map(|python| torch_of(python, cuda)) {
            Some(torch) => torch,
            None if cuda => install(&venv)?,
            None => install_cpu(&folder)?,
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
    let parts = ["MAJOR", "MINOR", "PATCH"].map(|name| {
        text.lines().find_map(|line| line.strip_prefix("#define TORCH_VERSION_")?.strip_prefix(name)).map(str::trim)
    });
    let parts: Option<Vec<&str>> = parts.into_iter().collect();
    Some(parts?.join("."))
}

fn is_right(libtorch: &Path) -> bool {
    version(libtorch).as_deref() == Some(VERSION) && libtorch.join("lib/libtorch_cpu.so").exists()
}

/// Whether the libraries that libtorch_cuda.so links to were installed beside it. cuDNN is one of them.
fn has_cuda_libraries(libtorch: &Path) -> bool {
    libtorch.join("../nvidia/cudnn/lib").exists()
}

/// The PyTorch that a Python would import, if it has the right version and its libtorch loads.
fn torch_of(python: &Path, cuda: bool) -> Option<PathBuf> {
    let script = "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])";
    let torch = PathBuf::from(output(program(python).args(["-c", script])).ok()?);
    let library = if cuda { "libtorch_cuda.so" } else { "libtorch_cpu.so" };
    (is_right(&torch) && load(python, &torch, library).is_ok()).then_some(torch)
}

/// Loads a library of libtorch, which fails if one that it needs is not there.
fn load(python: &Path, torch: &Path, library: &str) -> Result<()> {
    let script = "import ctypes, sys; ctypes.CDLL(sys.argv[1])";
    output(program(python).args(["-c", script]).arg(torch.join("lib").join(library))).map(drop)
}

/// Installs PyTorch and all that it needs into a virtual environment, and returns its `torch` folder.
pub fn install(venv: &Path) -> Result<PathBuf> {
    let python = python_of(venv)?;
    run(pip(&python).arg(CPU_PACKAGES[0])).with_context(cannot_install)?;
    let script = "import sysconfig; print(sysconfig.get_path('platlib'))";
    let torch = PathBuf::from(output(program(&python).args(["-c", script]))?).join("torch");
    check(&python, &torch)?;
    output(program(&python).args(["-c", "import torch"])).context("PyTorch was installed, but cannot be imported")?;
    Ok(torch)
}

/// Unpacks the wheels for training on the processor below `folder`, and returns the `torch` folder.
fn install_cpu(folder: &Path) -> Result<PathBuf> {
    let machine = PathBuf::from("python3");
    // Not every Python has pip, but its virtual environments do.
    let python = match has_pip(&machine) {
        true => machine,
        false => python_of(&folder.join("pip"))?,
    };
    let [wheels, unfinished] = [folder.join("wheels"), folder.join("unfinished")];
    for old in [&wheels, &unfinished] {
        match fs::remove_dir_all(old) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot remove {}", old.display()));
            }
            _ => {}
        }
    }
    fs::create_dir_all(&unfinished).context("cannot create .libtorch/unfinished")?;
    // pip unpacks into its temporary folder and moves the result, which is a rename on the same file system.
    run(pip(&python).env("TMPDIR", &unfinished).args(["--no-deps", "--target"]).arg(&wheels).args(CPU_PACKAGES))
        .with_context(cannot_install)?;
    fs::remove_dir_all(&unfinished).context("cannot remove .libtorch/unfinished")?;
    let torch = wheels.join("torch");
    check(&python, &torch)?;
    Ok(torch)
}

fn cannot_install() -> String {
    format!(
        "cannot install PyTorch {VERSION}: it needs Linux, a Python that PyTorch has a wheel for, and a package index"
    )
}

fn check(python: &Path, torch: &Path) -> Result<()> {
    ensure!(is_right(torch), "pip installed no libtorch {VERSION} in {}", torch.display());
    load(python, torch, "libtorch_cpu.so").context("libtorch was installed, but does not load")
}

/// The Python of a virtual environment, which is made if it is missing.
pub fn python_of(venv: &Path) -> Result<PathBuf> {
    let python = venv.join("bin/python3");
    if has_pip(&python) {
        return Ok(python);
    }
    output(program("python3").arg("--version"))
        .context("Python 3 is needed to fetch libtorch: install python3 (with its venv module)")?;
    run(program("python3").args(["-m", "venv", "--clear"]).arg(venv))
        .context("cannot make a virtual environment: install Python's venv module (Debian: python3-venv)")?;
    ensure!(has_pip(&python), "the virtual environment in {} has no pip: install Python's ensurepip", venv.display());
    Ok(python)
}

fn has_pip(python: &Path) -> bool {
    output(program(python).args(["-m", "pip", "--version"])).is_ok()
}

/// `pip install` of a Python; the caller adds packages.
pub fn pip(python: &Path) -> Command {
    let mut pip = program(python);
    // pip warns root of breaking the system's packages, which it does not touch here.
    pip.env("PIP_ROOT_USER_ACTION", "ignore");
    pip.args(["-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check"]);
    pip
}

/// Makes `link` point to `target` in one step, whatever it was before.
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
