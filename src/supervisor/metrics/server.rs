// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The HTTP server of the metrics.
//!
//! A separate thread serves it, with limits on everything that a peer can cost: the number of connections, the time of
//! each, and the bytes of its request. Each connection has one request and one answer.

use std::{
    convert::Infallible,
    fs, io,
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    pin::pin,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net,
    sync::{Semaphore, oneshot},
    time::{sleep, timeout},
};

use super::{Address, Board, text};
use crate::supervisor::socket::Socket;

/// The maximum number of connections at a time; more wait.
const MAX_CONNECTIONS: usize = 8;
/// The time limit for a connection.
const TIME: Duration = Duration::from_secs(10);
/// The time limit for a request to arrive.
const REQUEST_TIME: Duration = Duration::from_secs(2);
/// The maximum size of a request, and of one write, in bytes.
const BUFFER: usize = 16 << 10;
/// The maximum number of header lines.
const MAX_HEADERS: usize = 32;
/// The pause after a connection could not be accepted, for example because the host is out of descriptors.
const PAUSE: Duration = Duration::from_millis(200);

/// A server. Dropping it ends the server and removes its socket's file.
#[derive(Debug)]
pub struct Server {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    _file: Option<Socket>,
}

enum Listener {
    Unix(net::UnixListener),
    Tcp(net::TcpListener),
}

impl Server {
    /// Serves a board at an address. A Unix socket is accessible to its owner and group.
    ///
    /// # Errors
    /// The address cannot be bound, or the host is out of descriptors or threads.
    pub fn start(address: &Address, board: Arc<Board>) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        let context = runtime.enter();
        let (listener, file) = match address {
            Address::Unix(path) => {
                let socket = Socket::bind(path)?;
                fs::set_permissions(path, fs::Permissions::from_mode(0o660))?;
                let listener = socket.listener().try_clone()?;
                listener.set_nonblocking(true)?;
                let listener = net::UnixListener::from_std(listener)?;
                (Listener::Unix(listener), Some(socket))
            }
            Address::Loopback(address) => {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                tracing::info!("Metrics at http://{}/metrics", listener.local_addr()?);
                (Listener::Tcp(net::TcpListener::from_std(listener)?), None)
            }
        };
        drop(context);
        if file.is_some() {
            tracing::info!("Metrics at {address}");
        }
        let pages = Arc::new(Pages {
            metrics: text::Metrics::new(Arc::clone(&board)),
            board,
        });
        let (stop, stopped) = oneshot::channel();
        let serve = move || {
            runtime.spawn(serve(listener, pages));
            let _ = runtime.block_on(stopped);
        };
        let thread = thread::Builder::new().name("metrics".into()).spawn(serve)?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
            _file: file,
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(listener: Listener, pages: Arc<Pages>) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let accepted = match &listener {
            Listener::Unix(listener) => listener.accept().await.map(|(peer, _)| {
                let connection = connection(peer, Arc::clone(&pages));
                tokio::spawn(async move {
                    connection.await;
                    drop(place);
                });
            }),
            Listener::Tcp(listener) => listener.accept().await.map(|(peer, _)| {
                let connection = connection(peer, Arc::clone(&pages));
                tokio::spawn(async move {
                    connection.await;
                    drop(place);
                });
            }),
        };
        if let Err(error) = accepted {
            tracing::debug!("Metrics: {error}");
            sleep(PAUSE).await;
        }
    }
}

async fn connection(peer: impl AsyncRead + AsyncWrite + Unpin, pages: Arc<Pages>) {
    let answer = service_fn(|request| {
        let answer = pages.answer(&request);
        async { Ok::<_, Infallible>(answer) }
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIME)
        .max_buf_size(BUFFER)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(peer), answer);
    if let Ok(Err(error)) = timeout(TIME, pin!(connection)).await {
        tracing::debug!("Metrics: {error}");
    }
}

struct Pages {
    metrics: text::Metrics,
    board: Arc<Board>,
}

impl Pages {
    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let (status, kind, page) = self.page(request.method(), request.uri().path());
        let mut response = Response::new(Full::new(Bytes::from(page)));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if status == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        response
    }

    fn page(&self, method: &Method, path: &str) -> (StatusCode, &'static str, String) {
        const TEXT: &str = "text/plain; charset=utf-8";
        let broken = |_| (StatusCode::INTERNAL_SERVER_ERROR, TEXT, String::new());
        if method != Method::GET && method != Method::HEAD {
            let only = "Only GET\n".to_owned();
            return (StatusCode::METHOD_NOT_ALLOWED, TEXT, only);
        }
        match path {
            "/metrics" => self.metrics.text().map_or_else(
                |error| broken(error.to_string()),
                |text| (StatusCode::OK, text::CONTENT_TYPE, text),
            ),
            "/clients" => serde_json::to_string(&self.board.status()).map_or_else(
                |error| broken(error.to_string()),
                |text| (StatusCode::OK, "application/json", text),
            ),
            _ => {
                let there = "try /metrics or /clients\n".to_owned();
                (StatusCode::NOT_FOUND, TEXT, there)
            }
        }
    }
}
