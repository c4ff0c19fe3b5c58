//! The library of the relay, and what looks at its input.

use super::*;

/// The library, or what is in its place.
pub(super) fn opened(library: Library, pipe: DuplexStream) -> Served {
    match library {
        Library::Silent => Box::pin(async move {
            let _pipe = pipe;
            std::future::pending::<()>().await;
        }),
        Library::Ends => Box::pin(async move { drop(pipe) }),
        Library::Answers => {
            let (calls, tap) = (Calls::default(), Tap::new(pipe));
            let mut builder = Builder::new(calls.clone()).http2_only();
            builder
                .http2()
                .initial_stream_window_size(STREAM_WINDOW)
                .initial_connection_window_size(RELAY_WINDOW)
                .max_frame_size(FRAME_BYTES)
                .max_concurrent_streams(STREAMS_MAX)
                .max_header_list_size(HEADER_BYTES as u32);
            let service = hyper::service::service_fn(replied);
            Box::pin(async move {
                let served = builder.serve_connection(TokioIo::new(tap), service);
                let mut served = std::pin::pin!(served);
                std::future::poll_fn(|task| {
                    calls.poll(task);
                    let polled = served.as_mut().poll(task);
                    calls.poll(task);
                    polled.map(drop)
                })
                .await;
            })
        }
    }
}

/// Waits for the request where its method says so, and answers with as many bytes.
async fn replied(
    request: http::Request<hyper::body::Incoming>,
) -> Result<http::Response<Full<Bytes>>, Infallible> {
    let has_stream = request.uri().path() == PATHS[4];
    let body = match has_stream {
        true => request.into_body().collect().await.ok(),
        false => None,
    };
    let body = match body {
        Some(body) => body.to_bytes(),
        None => Bytes::from(vec![7; 3000]),
    };
    Ok(http::Response::new(Full::new(body)))
}

type Call = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The calls of the library, which its connection polls.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<Vec<Call>>>);

impl Calls {
    fn poll(&self, task: &mut Task<'_>) {
        let mut calls = std::mem::take(&mut *self.0.lock());
        calls.retain_mut(|call| call.as_mut().poll(task).is_pending());
        self.0.lock().append(&mut calls);
    }
}

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Calls {
    fn execute(&self, call: F) {
        self.0.lock().push(Box::pin(call));
    }
}

/// Looks at what the front sends to the library: whole heads that can be read, on streams of a client.
struct Tap {
    pipe: DuplexStream,
    preface: usize,
    partial: Partial,
    decoder: Decoder<()>,
    open: Option<(u32, Vec<u8>)>,
}

impl Tap {
    fn new(pipe: DuplexStream) -> Tap {
        Tap {
            pipe,
            preface: PREFACE.len(),
            partial: Partial::default(),
            decoder: Decoder::new(|_, _| ()),
            open: None,
        }
    }

    fn look(&mut self, bytes: &[u8]) {
        let (first, mut rest) = bytes.split_at(self.preface.min(bytes.len()));
        let at = PREFACE.len() - self.preface;
        assert_eq!(first, &PREFACE[at..at + first.len()]);
        self.preface -= first.len();
        let mut partial = std::mem::take(&mut self.partial);
        let frame_bytes_max = FRAME_BYTES as usize;
        while let Some(()) = partial
            .next(&mut rest, frame_bytes_max, |head, payload| {
                self.frame(head, payload);
            })
            .expect("no frame is longer than the library takes")
        {}
        self.partial = partial;
    }

    fn frame(&mut self, head: FrameHead, payload: &[u8]) {
        let is_continuation = head.kind == kind::CONTINUATION;
        let open = self.open.as_ref().map(|open| open.0);
        assert_eq!(open, is_continuation.then_some(head.id), "{head:?}");
        match head.kind {
            kind::HEADERS => {
                assert!(!head.has(flag::PADDED) && !head.has(flag::PRIORITY));
                self.open = Some((head.id, payload.to_vec()));
            }
            kind::CONTINUATION => {
                if let Some((_, block)) = &mut self.open {
                    block.extend_from_slice(payload);
                }
            }
            kind::DATA | kind::RST_STREAM | kind::WINDOW_UPDATE => {}
            kind::SETTINGS | kind::PING => assert_eq!(head.id, 0),
            _ => panic!("{head:?}"),
        }
        let is_head = is_continuation || head.kind == kind::HEADERS;
        if is_head
            && head.has(flag::END_HEADERS)
            && let Some((_, block)) = self.open.take()
        {
            let decoded = self.decoder.decode(&block, |(), _, _| true);
            assert!(decoded.is_ok() && self.decoder.generation() == 0);
        }
    }
}

impl AsyncRead for Tap {
    fn poll_read(
        mut self: Pin<&mut Self>,
        task: &mut Task<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        let polled = Pin::new(&mut this.pipe).poll_read(task, buffer);
        this.look(&buffer.filled()[before..]);
        polled
    }
}

impl AsyncWrite for Tap {
    fn poll_write(
        mut self: Pin<&mut Self>,
        task: &mut Task<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.pipe).poll_write(task, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_flush(task)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_shutdown(task)
    }
}
