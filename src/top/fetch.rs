// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Requests the status of the service.

use std::{io, time::Duration};

use http_body_util::{BodyExt, Empty, Limited};
use hyper::{Request, StatusCode, body::Bytes, client::conn::http1, header::HOST};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    runtime::{Builder, Runtime},
    time::timeout,
};

use crate::supervisor::metrics::{Address, Status};

/// The time limit for an answer.
const TIME: Duration = Duration::from_secs(5);
/// The maximum size of an answer in bytes: a thousand VMs with a thousand clients each need less.
const MAX_BYTES: usize = 1 << 30;

/// The reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No server listens, or the connection failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The server does not speak HTTP.
    #[error("{0}")]
    Http(#[from] hyper::Error),
    /// The server answered with an error, so it is another service.
    #[error("it answers {0}")]
    Status(StatusCode),
    /// The answer is too long, or ends too early.
    #[error("{0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    /// The service has another version.
    #[error("malformed answer: {0}")]
    Json(#[from] serde_json::Error),
    /// The answer takes too long.
    #[error("no answer in {TIME:?}")]
    Late,
}

/// An HTTP client for the status page.
#[derive(Debug)]
pub struct Fetcher {
    runtime: Runtime,
    address: Address,
}

impl Fetcher {
    /// A client for the service with metrics at this address.
    ///
    /// # Errors
    /// The host is out of descriptors.
    pub fn new(address: Address) -> io::Result<Self> {
        let mut builder = Builder::new_current_thread();
        let runtime = builder.enable_io().enable_time().build()?;
        Ok(Self { runtime, address })
    }

    /// The present status.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn fetch(&self) -> Result<Status, Error> {
        let page = async { timeout(TIME, self.page()).await };
        let page = self.runtime.block_on(page);
        let page = page.map_err(|_| Error::Late)??;
        Ok(serde_json::from_slice(&page)?)
    }

    async fn page(&self) -> Result<Bytes, Error> {
        match &self.address {
            Address::Unix(path) => get(UnixStream::connect(path).await?).await,
            Address::Loopback(address) => get(TcpStream::connect(address).await?).await,
        }
    }
}

async fn get(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<Bytes, Error> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.uri_mut() = hyper::Uri::from_static("/clients");
    let host = hyper::header::HeaderValue::from_static("localhost");
    request.headers_mut().insert(HOST, host);
    let answer = sender.send_request(request).await?;
    if answer.status() != StatusCode::OK {
        return Err(Error::Status(answer.status()));
    }
    let body = Limited::new(answer.into_body(), MAX_BYTES);
    Ok(body.collect().await.map_err(Error::Body)?.to_bytes())
}
