// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The addresses at which metrics are served.

use std::{fmt, net::SocketAddr, path::PathBuf, str::FromStr};

/// The default address of `top`.
pub const DEFAULT: &str = "unix:/run/virtio-gpgpu/metrics.sock";

/// The maximum length of a socket's path, in bytes.
const MAX_PATH: usize = 107;

/// A Unix socket, or a port that other machines cannot reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// A TCP port of a loopback address.
    Loopback(SocketAddr),
}

/// The reason why metrics cannot be served at an address.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is not an address.
    #[error(
        "neither unix:/PATH nor a loopback address and port, such as 127.0.0.1:9400 or [::1]:9400"
    )]
    Form,
    /// A path that cannot be a socket's.
    #[error("a socket's path must be absolute, and at most {MAX_PATH} bytes long")]
    Path,
    /// Other machines could reach it.
    #[error(
        "{0} is not a loopback address: metrics have no password, so only this machine can read them; for remote \
         access, use a proxy with authentication"
    )]
    NotLoopback(SocketAddr),
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if let Some(path) = text.strip_prefix("unix:") {
            if !path.starts_with('/') || path.len() > MAX_PATH {
                return Err(Error::Path);
            }
            return Ok(Self::Unix(path.into()));
        }
        let address: SocketAddr = text.parse().map_err(|_| Error::Form)?;
        if !address.ip().to_canonical().is_loopback() {
            return Err(Error::NotLoopback(address));
        }
        Ok(Self::Loopback(address))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Loopback(address) => write!(f, "http://{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_can_be_served() {
        assert_eq!(
            "unix:/run/x.sock".parse(),
            Ok(Address::Unix("/run/x.sock".into()))
        );
        for loopback in [
            "127.0.0.1:9400",
            "127.8.8.8:1",
            "[::1]:9400",
            "[::ffff:127.0.0.1]:9400",
        ] {
            let address = loopback.parse().unwrap();
            assert_eq!(Address::from_str(loopback), Ok(Address::Loopback(address)));
        }
        for reachable in [
            "0.0.0.0:9400",
            "[::]:9400",
            "192.0.2.1:9400",
            "[::ffff:0.0.0.0]:1",
        ] {
            let address = reachable.parse().unwrap();
            assert_eq!(
                Address::from_str(reachable),
                Err(Error::NotLoopback(address))
            );
        }
        assert_eq!(Address::from_str("unix:relative"), Err(Error::Path));
        assert_eq!(
            Address::from_str(&format!("unix:/{}", "x".repeat(107))),
            Err(Error::Path)
        );
        for wrong in [
            "",
            "9400",
            ":9400",
            "127.0.0.1",
            "localhost:9400",
            "/run/x.sock",
        ] {
            assert_eq!(Address::from_str(wrong), Err(Error::Form), "{wrong}");
        }
    }

    #[test]
    fn the_default_is_an_address() {
        assert_eq!(DEFAULT.parse::<Address>().unwrap().to_string(), DEFAULT);
    }
}
