//! Where the driver keeps what it compiles from PTX: a directory for each socket.
//!
//! NVIDIA's driver finds compiled code again by a number of 64 bits that it makes from the source. So VMs must not share a
//! directory: one could leave code there that another one's driver takes for its own, or see by the time that a load takes
//! what the other has loaded.

use std::{
    ffi::OsString,
    fs::{DirBuilder, File},
    io,
    os::unix::{
        ffi::OsStrExt,
        fs::{DirBuilderExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    sync::Arc,
};

/// The directory that the environment gives the program for such things, if it does: CUDA's own variables first.
pub fn directory() -> Option<PathBuf> {
    choose(|name| std::env::var_os(name).filter(|value| !value.is_empty()))
}

fn choose(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    if variable("CUDA_CACHE_DISABLE").is_some_and(|value| value != "0") {
        return None;
    }
    let absolute = |path: PathBuf| path.is_absolute().then_some(path);
    variable("CUDA_CACHE_PATH")
        .or_else(|| variable("CACHE_DIRECTORY"))
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(variable("XDG_CACHE_HOME")?).join("virtio-gpgpu")))
        .or_else(|| Some(PathBuf::from(variable("HOME")?).join(".cache/virtio-gpgpu")))
        .and_then(absolute)
}

/// Makes and opens the directory of the VMs that connect to `socket`.
///
/// # Errors
/// It cannot be made, or belongs to another user.
pub fn open(directory: &Path, socket: &Path) -> io::Result<Arc<File>> {
    let path = directory.join(name(&std::path::absolute(socket)?));
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&path)?;
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW)
        .open(&path)?;
    // What anyone else can write there would run in guests' workers.
    use std::os::unix::fs::MetadataExt;
    let metadata = file.metadata()?;
    // SAFETY: takes nothing and cannot fail.
    let own = unsafe { libc::geteuid() };
    if metadata.uid() != own || metadata.mode() & 0o022 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "others may write there",
        ));
    }
    Ok(Arc::new(file))
}

/// A socket's path as one name.
fn name(socket: &Path) -> OsString {
    let mut name = Vec::new();
    for byte in socket.as_os_str().as_bytes() {
        match byte {
            b'/' => name.extend_from_slice(b"%2F"),
            b'%' => name.extend_from_slice(b"%25"),
            _ => name.push(*byte),
        }
    }
    std::os::unix::ffi::OsStringExt::from_vec(name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn each_socket_has_a_directory_of_its_own() {
        let base = tempfile::tempdir().unwrap();
        let cache = base.path().join("a/b");
        for socket in ["/run/vm0", "/run/vm1", "/run%2Fvm0"] {
            open(&cache, Path::new(socket)).unwrap();
        }
        assert_eq!(std::fs::read_dir(&cache).unwrap().count(), 3);
        open(&cache, Path::new("/run/vm0")).unwrap();
        assert_eq!(std::fs::read_dir(&cache).unwrap().count(), 3);
        let theirs = cache.join("%2Frun%2Fvm0");
        std::fs::set_permissions(&theirs, PermissionsExt::from_mode(0o777)).unwrap();
        assert!(open(&cache, Path::new("/run/vm0")).is_err());
    }

    #[test]
    fn the_environment_says_where() {
        let of = |variables: &'static [(&str, &str)]| {
            choose(|name| {
                let found = variables.iter().find(|(variable, _)| *variable == name);
                found.map(|(_, value)| value.into())
            })
        };
        static ALL: [(&str, &str); 3] = [
            ("HOME", "/h"),
            ("CACHE_DIRECTORY", "/c"),
            ("XDG_CACHE_HOME", "/x"),
        ];
        assert_eq!(of(&ALL), Some("/c".into()));
        assert_eq!(of(&ALL[..1]), Some("/h/.cache/virtio-gpgpu".into()));
        assert_eq!(
            of(&[("CUDA_CACHE_PATH", "/p"), ("HOME", "/h")]),
            Some("/p".into())
        );
        assert_eq!(of(&[("CUDA_CACHE_DISABLE", "1"), ("HOME", "/h")]), None);
        assert_eq!(of(&[("CUDA_CACHE_PATH", "relative")]), None);
        assert_eq!(of(&[]), None);
    }
}
