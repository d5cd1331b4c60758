// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The operator's own copies of NVIDIA's libraries. A worker opens each at its first use.
//!
//! They lie in directories that the operator names. A library is opened by its whole path, newest version first, and
//! stays open until the process ends. NVIDIA's libraries find each other in one directory. If each has a directory of
//! its own, a library's dependencies are opened before it, and the loader then uses the open ones.

use std::{
    collections::HashMap,
    ffi::{CStr, CString, c_void},
    fmt,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    str::FromStr,
    sync::OnceLock,
    time::Instant,
};

use gpgpu_locks::Mutex;

/// One of NVIDIA's libraries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Library {
    /// Linear algebra.
    Cublas,
    /// Matrix products with more options.
    #[value(name = "cublaslt")]
    CublasLt,
    /// Neural networks.
    Cudnn,
    /// Fourier transforms.
    Cufft,
    /// Random numbers.
    Curand,
    /// Sparse matrices.
    Cusparse,
    /// Decompositions and solvers.
    Cusolver,
    /// Matrix products with structured sparsity.
    #[value(name = "cusparselt")]
    CusparseLt,
    /// JPEGs.
    Nvjpeg,
    /// Tracing of work.
    Cupti,
}

impl From<gpgpu_protocol::libraries::Library> for Library {
    fn from(of: gpgpu_protocol::libraries::Library) -> Self {
        match of {
            gpgpu_protocol::libraries::Library::Cublas => Self::Cublas,
            gpgpu_protocol::libraries::Library::CublasLt => Self::CublasLt,
            gpgpu_protocol::libraries::Library::Cufft => Self::Cufft,
            gpgpu_protocol::libraries::Library::Curand => Self::Curand,
            gpgpu_protocol::libraries::Library::Cusolver => Self::Cusolver,
            gpgpu_protocol::libraries::Library::Cusparse => Self::Cusparse,
            gpgpu_protocol::libraries::Library::Cudnn => Self::Cudnn,
            gpgpu_protocol::libraries::Library::CusparseLt => Self::CusparseLt,
            gpgpu_protocol::libraries::Library::Nvjpeg => Self::Nvjpeg,
        }
    }
}

/// A version of a library.
#[derive(Debug)]
struct Version {
    /// Its file name, by which the loader finds it.
    file: &'static str,
    /// Libraries that it loads, at its start or later, each after its own dependencies. Some are optional for this
    /// version.
    needs: &'static [&'static str],
    /// The PyPI package that contains it.
    package: &'static str,
}

impl Library {
    /// All libraries.
    pub const ALL: [Self; 10] = [
        Self::Cublas,
        Self::CublasLt,
        Self::Cudnn,
        Self::Cufft,
        Self::Curand,
        Self::Cusparse,
        Self::Cusolver,
        Self::CusparseLt,
        Self::Nvjpeg,
        Self::Cupti,
    ];

    /// Its name in the operator's configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cublas => "cublas",
            Self::CublasLt => "cublaslt",
            Self::Cudnn => "cudnn",
            Self::Cufft => "cufft",
            Self::Curand => "curand",
            Self::Cusparse => "cusparse",
            Self::Cusolver => "cusolver",
            Self::CusparseLt => "cusparselt",
            Self::Nvjpeg => "nvjpeg",
            Self::Cupti => "cupti",
        }
    }

    /// Its versions, newest first. For some libraries, CUDA 13 and CUDA 12 use one file name.
    const fn versions(self) -> &'static [Version] {
        macro_rules! versions {
            ($($file:literal of $package:literal $(needs $($needed:literal)*)?;)*) => {
                &[$(Version { file: $file, needs: &[$($($needed),*)?], package: $package }),*]
            };
        }
        match self {
            Self::Cublas => versions! {
                "libcublas.so.13" of "nvidia-cublas" needs "libcublasLt.so.13";
                "libcublas.so.12" of "nvidia-cublas-cu12" needs "libcublasLt.so.12";
            },
            Self::CublasLt => versions! {
                "libcublasLt.so.13" of "nvidia-cublas";
                "libcublasLt.so.12" of "nvidia-cublas-cu12";
            },
            Self::Cudnn => versions! {
                "libcudnn.so.9" of "nvidia-cudnn-cu13"
                    needs "libcublasLt.so.13" "libcublas.so.13" "libnvrtc.so.13"
                    "libcublasLt.so.12" "libcublas.so.12" "libnvrtc.so.12";
            },
            Self::Cufft => versions! {
                "libcufft.so.12" of "nvidia-cufft" needs "libnvJitLink.so.13";
                "libcufft.so.11" of "nvidia-cufft-cu12" needs "libnvJitLink.so.12";
            },
            Self::Curand => versions! {
                "libcurand.so.10" of "nvidia-curand" needs "libcudart.so.13" "libcudart.so.12";
            },
            Self::Cusparse => versions! {
                "libcusparse.so.12" of "nvidia-cusparse" needs "libnvJitLink.so.13" "libnvJitLink.so.12";
            },
            Self::Cusolver => versions! {
                "libcusolver.so.12" of "nvidia-cusolver"
                    needs "libcublasLt.so.13" "libcublas.so.13" "libnvJitLink.so.13" "libcusparse.so.12";
                "libcusolver.so.11" of "nvidia-cusolver-cu12"
                    needs "libcublasLt.so.12" "libcublas.so.12" "libnvJitLink.so.12" "libcusparse.so.12";
            },
            Self::CusparseLt => versions! {
                "libcusparseLt.so.0" of "nvidia-cusparselt-cu13"
                    needs "libnvJitLink.so.13" "libnvJitLink.so.12";
            },
            Self::Nvjpeg => versions! {
                "libnvjpeg.so.13" of "nvidia-nvjpeg";
                "libnvjpeg.so.12" of "nvidia-nvjpeg-cu12";
            },
            Self::Cupti => versions! {
                "libcupti.so.13" of "nvidia-cuda-cupti";
                "libcupti.so.12" of "nvidia-cuda-cupti-cu12";
            },
        }
    }

    /// The path of its newest version in these directories. If several directories have that version, the first one
    /// counts.
    pub fn find(self, directories: &[PathBuf]) -> Option<PathBuf> {
        let mut found = self
            .versions()
            .iter()
            .filter_map(|v| find(v.file, directories));
        found.next()
    }

    /// A function of [`super::double`].
    #[cfg(test)]
    pub fn symbol(self, name: &'static str) -> Result<*const c_void, Missing> {
        Ok(super::double::library_symbol(name))
    }

    /// The address of one of its functions. Opens the library in the configured directories ([`configure`]) at the
    /// first use. The address is valid until the process ends.
    ///
    /// # Errors
    /// See [`Missing`]. Each error is logged once.
    #[cfg(not(test))]
    pub fn symbol(self, name: &'static str) -> Result<*const c_void, Missing> {
        OPERATORS.get_or_init(Libraries::default).symbol(self, name)
    }

    /// Opens the library before its first use.
    ///
    /// # Errors
    /// As [`Library::symbol`].
    pub fn open(self) -> Result<(), Missing> {
        OPERATORS.get_or_init(Libraries::default).open(self)
    }
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Library {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|library| library.name() == name);
        let known = || Self::ALL.map(Self::name).join(", ");
        found.ok_or_else(|| format!("{name:?} is not a library; the libraries are {}", known()))
    }
}

/// The reason why a function cannot be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// No directory has the library, or no directories are configured.
    #[error("{} is missing", .0.versions()[0].file)]
    Library(Library),
    /// The loader cannot open it.
    #[error("{} cannot be opened", .0.versions()[0].file)]
    Broken(Library),
    /// The library has no such function, usually because it is too old.
    #[error("{0} has no {1}")]
    Symbol(Library, &'static str),
}

/// The libraries of this process.
static OPERATORS: OnceLock<Libraries> = OnceLock::new();

/// Sets the directories of the libraries. Without this call there are no libraries.
pub fn configure(directories: Vec<PathBuf>) {
    let _ = OPERATORS.set(Libraries::new(directories));
}

/// The function's address, or the loader's handle of an open library.
type Address = usize;

/// The results of look-ups of functions, including failures.
type Symbols = HashMap<(Library, &'static str), Result<Address, Missing>>;

/// Libraries that are opened at their first use.
#[derive(Debug, Default)]
struct Libraries {
    directories: Vec<PathBuf>,
    open: [OnceLock<Result<Address, Missing>>; Library::ALL.len()],
    symbols: Mutex<Symbols>,
}

impl Libraries {
    fn new(directories: Vec<PathBuf>) -> Self {
        Self {
            directories,
            ..Self::default()
        }
    }

    fn symbol(&self, library: Library, name: &'static str) -> Result<*const c_void, Missing> {
        let lock = || self.symbols.lock();
        let known = lock().get(&(library, name)).copied();
        let found = match known {
            Some(found) => found,
            None => {
                // A look-up of another function need not wait while a library is opened.
                let found = self.look_up(library, name);
                let mut symbols = lock();
                if symbols.insert((library, name), found).is_none()
                    && let Err(missing @ Missing::Symbol(..)) = found
                {
                    tracing::warn!("{missing}: the operator's copy is too old for it, or too new");
                }
                found
            }
        };
        found.map(|address| address as *const c_void)
    }

    fn look_up(&self, library: Library, name: &'static str) -> Result<Address, Missing> {
        let handle = self.handle(library)?;
        let missing = Missing::Symbol(library, name);
        let name = CString::new(name).map_err(|_| missing)?;
        // SAFETY: the handle is the loader's and is never closed; the name lives across the call.
        let found = unsafe { libc::dlsym(handle as *mut c_void, name.as_ptr()) };
        if found.is_null() {
            return Err(missing);
        }
        Ok(found as Address)
    }

    fn open(&self, library: Library) -> Result<(), Missing> {
        self.handle(library).map(drop)
    }

    fn handle(&self, library: Library) -> Result<Address, Missing> {
        *self.open[library as usize].get_or_init(|| self.load(library))
    }

    /// Opens the newest version of a library that can be opened, and logs the reason if there is none.
    fn load(&self, library: Library) -> Result<Address, Missing> {
        let mut missing = Missing::Library(library);
        for version in library.versions() {
            let began = Instant::now();
            match self.load_version(version) {
                Some(Ok(handle)) => {
                    tracing::debug!("{} opened in {:?}", version.file, began.elapsed());
                    return Ok(handle);
                }
                Some(Err(reason)) => {
                    tracing::warn!("{reason}");
                    missing = Missing::Broken(library);
                }
                None => {}
            }
        }
        if missing == Missing::Library(library) {
            tracing::warn!("{}", absence(library, &self.directories));
        }
        Err(missing)
    }

    /// Opens a version if it exists. The error is the reason why it cannot be opened.
    fn load_version(&self, version: &Version) -> Option<Result<Address, String>> {
        let path = find(version.file, &self.directories)?;
        self.load_needed(version);
        let opened = dlopen(&path);
        Some(opened.map_err(|reason| format!("{} cannot be opened: {reason}", path.display())))
    }

    /// Opens the existing dependencies of a version. If one is missing, the version still opens, or the loader's error
    /// names it.
    fn load_needed(&self, version: &Version) {
        for file in version.needs {
            if let Some(path) = find(file, &self.directories)
                && let Err(reason) = dlopen(&path)
            {
                tracing::debug!("{} cannot be opened: {reason}", path.display());
            }
        }
    }
}

fn find(file: &str, directories: &[PathBuf]) -> Option<PathBuf> {
    let mut paths = directories.iter().map(|directory| directory.join(file));
    paths.find(|path| path.is_file())
}

/// The reason, as text, why the version that [`Library::find`] returns cannot be opened; `None` if it can.
pub fn why_not(library: Library, directories: &[PathBuf]) -> Option<String> {
    let libraries = Libraries::new(directories.to_vec());
    let mut versions = library.versions().iter();
    let opened = versions.find_map(|version| libraries.load_version(version));
    opened?.err()
}

/// The message that no directory has a library. It names the package that contains the library.
pub fn absence(library: Library, directories: &[PathBuf]) -> String {
    let files: Vec<&str> = library.versions().iter().map(|v| v.file).collect();
    let files = files.join(" or ");
    let packages: Vec<&str> = library.versions().iter().map(|v| v.package).collect();
    let packages = packages.join(" or ");
    let place = match directories {
        [] => format!("{files} is missing: --libraries names no directory"),
        directories => {
            let directories: Vec<String> = directories
                .iter()
                .map(|f| f.display().to_string())
                .collect();
            format!(
                "{files} is in none of --libraries {}",
                directories.join(":")
            )
        }
    };
    format!("{place}; PyPI's {packages} has it")
}

/// Opens a shared object permanently; its symbols stay local.
fn dlopen(path: &Path) -> Result<Address, String> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
    // SAFETY: the path lives across the call. The object's initialisers run: the operator has named it for that.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if !handle.is_null() {
        return Ok(handle as Address);
    }
    // SAFETY: takes nothing, and gives this thread's own message, which lives until its next call of the loader.
    let reason = unsafe { libc::dlerror() };
    if reason.is_null() {
        return Err("the loader does not say why".to_owned());
    }
    // SAFETY: the loader's message is a string.
    let reason = unsafe { CStr::from_ptr(reason) };
    Err(reason.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use clap::ValueEnum;

    use super::*;

    /// Compiles C code to a shared object; `needs` are other libraries in the same directory.
    fn compile(directory: &Path, file: &str, code: &str, needs: &[&str]) {
        fs::create_dir_all(directory).unwrap();
        let source = directory.join(format!("{file}.c"));
        fs::write(&source, code).unwrap();
        let mut command = Command::new("cc");
        command
            .args(["-shared", "-fPIC", "-Wl,-rpath,$ORIGIN", "-o"])
            .arg(directory.join(file))
            .arg(format!("-Wl,-soname,{file}"))
            .arg(&source)
            .args(needs);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    fn call(address: *const c_void) -> i32 {
        // SAFETY: the tests' objects have functions of this type alone.
        let function: extern "C" fn() -> i32 = unsafe { std::mem::transmute(address) };
        function()
    }

    #[test]
    fn a_function_is_found_with_what_its_library_needs_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let lt = "int cublasLtTest(void) { return 20; }";
        compile(directory, "libcublasLt.so.13", lt, &[]);
        let needed = directory.join("libcublasLt.so.13");
        let code = "int cublasLtTest(void); int cublasTest(void) { return cublasLtTest() + 2; }";
        compile(
            directory,
            "libcublas.so.13",
            code,
            &[needed.to_str().unwrap()],
        );
        let libraries = Libraries::new(vec![directory.to_owned()]);
        let found = libraries.symbol(Library::Cublas, "cublasTest").unwrap();
        assert_eq!(call(found), 22);
        assert_eq!(libraries.symbol(Library::Cublas, "cublasTest"), Ok(found));
        let missing = Missing::Symbol(Library::Cublas, "cublasOther");
        assert_eq!(
            libraries.symbol(Library::Cublas, "cublasOther"),
            Err(missing)
        );
        assert_eq!(missing.to_string(), "cublas has no cublasOther");
        let missing = Missing::Library(Library::Cudnn);
        assert_eq!(libraries.open(Library::Cudnn), Err(missing));
        assert_eq!(libraries.symbol(Library::Cudnn, "x"), Err(missing));
    }

    #[test]
    fn a_librarys_dependencies_may_be_in_another_directory() {
        let whole = tempfile::tempdir().unwrap();
        let [own, other] = ["own", "other"].map(|name| whole.path().join(name));
        let link = "int nvJitLinkTest(void) { return 5; }";
        compile(&other, "libnvJitLink.so.12", link, &[]);
        let needed = other.join("libnvJitLink.so.12");
        let code = "int nvJitLinkTest(void); int cufftTest(void) { return nvJitLinkTest(); }";
        compile(&own, "libcufft.so.11", code, &[needed.to_str().unwrap()]);
        let alone = Libraries::new(vec![own.clone()]);
        let broken = Missing::Broken(Library::Cufft);
        assert_eq!(alone.symbol(Library::Cufft, "cufftTest"), Err(broken));
        let why = why_not(Library::Cufft, std::slice::from_ref(&own)).unwrap();
        assert!(
            why.contains("libcufft.so.11 cannot be opened: libnvJitLink.so.12: "),
            "{why}"
        );
        let both = [own, other];
        assert_eq!(why_not(Library::Cufft, &both), None);
        let both = Libraries::new(both.into());
        assert_eq!(call(both.symbol(Library::Cufft, "cufftTest").unwrap()), 5);
    }

    #[test]
    fn the_newest_version_that_opens_is_taken() {
        let whole = tempfile::tempdir().unwrap();
        let [old, new, bad] = ["old", "new", "bad"].map(|name| whole.path().join(name));
        let version = |number: u32| format!("int version(void) {{ return {number}; }}");
        compile(&old, "libcusolver.so.11", &version(11), &[]);
        compile(&new, "libcusolver.so.12", &version(12), &[]);
        fs::create_dir(&bad).unwrap();
        fs::write(bad.join("libcusolver.so.12"), "no library").unwrap();
        let found = |directories: [&PathBuf; 2]| {
            let directories: Vec<PathBuf> = directories.map(Clone::clone).into();
            let found = Libraries::new(directories.clone()).symbol(Library::Cusolver, "version");
            (Library::Cusolver.find(&directories), call(found.unwrap()))
        };
        let newest = new.join("libcusolver.so.12");
        assert_eq!(found([&old, &new]), (Some(newest), 12));
        assert_eq!(found([&old, &bad]).1, 11);
    }

    #[test]
    fn without_directories_no_library_loads_and_the_message_names_its_package() {
        let none = Libraries::default();
        let missing = Missing::Library(Library::Cublas);
        assert_eq!(
            none.symbol(Library::Cublas, "cublasCreate_v2"),
            Err(missing)
        );
        assert_eq!(
            absence(Library::Cublas, &["/a".into(), "/b".into()]),
            "libcublas.so.13 or libcublas.so.12 is in none of --libraries /a:/b; PyPI's nvidia-cublas or nvidia-cublas-cu12 has it"
        );
        let said = absence(Library::Curand, &[]);
        assert!(said.contains("--libraries names no directory"), "{said}");
    }

    #[test]
    fn each_library_has_one_name_and_one_place() {
        for (place, library) in Library::ALL.into_iter().enumerate() {
            assert_eq!(library as usize, place);
            assert_eq!(library.name().parse(), Ok(library));
            let value = library.to_possible_value().unwrap();
            assert_eq!(value.get_name(), library.name());
        }
        assert!("cuda".parse::<Library>().unwrap_err().contains("cusolver"));
    }
}
