// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Without a grant, no command of a client reaches the GPU, on [`super::double`].

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

use gpgpu_protocol::{
    api::{
        Arg, BoxCopy, BoxEnd, Context, Copy2D, Event, Function, Gives, GraphExec, LaunchConfig,
        MemOp, OPERATIONS, Stream, request,
    },
    codec::{Blob, Writer},
    cuda::*,
    futex,
    layout::{StreamCommand, status},
    libraries::{
        self, Class, Kind, Library,
        call::{self, PointerMode},
    },
    ring::RING_BYTES,
    with_api,
};
use zerocopy::IntoBytes;

use super::{
    lifetimes_tests::{A_WHILE, Rig},
    session::{Data, Session},
    shared_memory::Shares,
};
use crate::cuda::double;
use crate::{
    account::{Account, Lease, Ledger, Quota, Shared, Terms, TermsView, grant},
    ipc::{MapRun, sealed_memfd},
};

/// The size of a row, the number of rows, and the pitch, for all commands that need them.
const WIDTH: usize = 16;
const HEIGHT: usize = 16;
const PITCH: usize = 64;
/// The number of a grant.
const NUMBER: u32 = 4;
/// The address of the ring in the guest.
const RING: u64 = 0x1234_5690_0000;

/// A valid argument for an operation that submits work to the GPU.
trait Good: Arg {
    /// The argument of this name.
    fn good(rig: &Rig, argument: &str) -> Self::Request;
}

macro_rules! zero {
    ($($ty:ty),*) => {$(impl Good for $ty {
        fn good(_: &Rig, _: &str) -> Self::Request {
            Default::default()
        }
    })*};
}

zero!(u8, u16, u32, bool);

impl Good for u64 {
    fn good(rig: &Rig, _: &str) -> u64 {
        rig.alloc()
    }
}

impl Good for usize {
    fn good(_: &Rig, argument: &str) -> usize {
        match argument {
            "pitch" | "dstPitch" => PITCH,
            "height" | "Height" => HEIGHT,
            "depth" => 1,
            _ => WIDTH,
        }
    }
}

impl Good for Blob {
    fn good(_: &Rig, argument: &str) -> Blob {
        // The function has no parameters.
        let bytes = if argument == "params" { 0 } else { WIDTH };
        Blob(vec![7; bytes])
    }
}

impl Good for Vec<MemOp> {
    fn good(rig: &Rig, _: &str) -> Vec<MemOp> {
        vec![MemOp {
            operation: CU_STREAM_MEM_OP_WRITE_VALUE_32,
            flags: 0,
            address: rig.alloc(),
            value: 7,
        }]
    }
}

impl Good for Copy2D {
    fn good(rig: &Rig, _: &str) -> Copy2D {
        Copy2D {
            dst: rig.alloc(),
            dst_pitch: PITCH,
            src: rig.alloc(),
            src_pitch: PITCH,
            width: WIDTH,
            height: HEIGHT,
        }
    }
}

impl Good for BoxEnd {
    fn good(rig: &Rig, _: &str) -> BoxEnd {
        BoxEnd {
            array: rig.array(),
            ..BoxEnd::default()
        }
    }
}

impl Good for BoxCopy {
    fn good(rig: &Rig, _: &str) -> BoxCopy {
        BoxCopy {
            dst: BoxEnd::good(rig, "dst"),
            src: BoxEnd::good(rig, "src"),
            width: WIDTH,
            height: HEIGHT,
            depth: 1,
        }
    }
}

impl Good for Context {
    fn good(rig: &Rig, _: &str) -> u64 {
        rig.contexts[0]
    }
}

impl Good for Stream {
    fn good(rig: &Rig, _: &str) -> u64 {
        rig.streams[0]
    }
}

impl Good for Event {
    fn good(rig: &Rig, _: &str) -> u64 {
        rig.events[0]
    }
}

impl Good for Function {
    fn good(rig: &Rig, _: &str) -> u64 {
        rig.function
    }
}

impl Good for GraphExec {
    fn good(rig: &Rig, _: &str) -> u64 {
        rig.executable()
    }
}

impl Good for LaunchConfig {
    fn good(rig: &Rig, _: &str) -> LaunchConfig {
        rig.launch().config
    }
}

/// Makes a valid command of an operation, without its header.
type Make = fn(&Rig) -> Vec<u8>;

macro_rules! operations {
    ($($(#[doc = $doc:literal])* $op:literal $completion:ident $style:ident $name:ident $($per_thread:ident)? ($($arg:ident : $ty:ty),*) $($is:ident)*;)*) => {
        /// The operations of the table that submit work to the GPU.
        fn operations() -> Vec<(u16, &'static str, Make)> {
            let mut all = Vec::<(u16, &'static str, Make)>::new();
            $(operations!(@ all $op $name ($($arg : $ty),*) $($is)*);)*
            all
        }
    };
    (@ $all:ident $op:literal $name:ident ($($args:tt)*) work $($is:ident)*) => {
        operations!(make $all $op $name ($($args)*));
    };
    (@ $all:ident $op:literal $name:ident ($($args:tt)*) order $($is:ident)*) => {
        operations!(make $all $op $name ($($args)*));
    };
    (@ $all:ident $op:literal $name:ident ($($args:tt)*) $($is:ident)*) => {};
    (make $all:ident $op:literal $name:ident ($($arg:ident : $ty:ty),*)) => {
        $all.push(($op, stringify!($name), |_rig| {
            let request = request::$name { $($arg: <$ty as Good>::good(_rig, stringify!($arg))),* };
            let mut writer = Writer::new();
            writer.put(&request);
            writer.into_bytes()
        }));
    };
}

with_api!(operations);

fn command(op: u16, context: u64, arguments: &[u8]) -> Vec<u8> {
    let bytes = size_of::<StreamCommand>() + arguments.len();
    let head = StreamCommand {
        bytes: (bytes as u32).into(),
        op: op.into(),
        reserved: 0.into(),
        context: context.into(),
    };
    [head.as_bytes(), arguments].concat()
}

/// Executes a command with as much data as its rows have. It does not wait for the GPU.
fn run(session: &Session, command: &[u8]) -> CUresult {
    let (input, mut output) = ([5_u8; WIDTH * HEIGHT], [0_u8; WIDTH * HEIGHT]);
    let data = Data {
        input: input.as_ptr().cast(),
        input_bytes: input.len(),
        output: output.as_mut_ptr().cast(),
        output_bytes: output.len(),
        ..Data::none()
    };
    let (answer, _) = super::execute(session, command, data, |_, _, _| Ok(1)).unwrap();
    answer.result
}

/// Makes the client share its GPU, without a grant.
fn share(session: &Session) -> &Lease {
    let terms = TermsView::map(Arc::clone(Terms::new().unwrap().file())).unwrap();
    let ledger = Arc::new(Shared::<Ledger>::new(c"test").unwrap());
    let shares = Shares {
        peers: crate::ipc::peers::WorkerEnd::new(crate::ipc::pair().unwrap().0),
        number: 1,
        account: Shared::<Account>::new(c"test").unwrap(),
        quota: Quota::new(ledger, terms, 0),
        doorbell: sealed_memfd(c"test", 4096).unwrap(),
        gpus: Vec::new(),
    };
    session.shares.set(shares).unwrap();
    &session.shares.get().unwrap().account.leases[0]
}

/// A ring, for the copies from and to its blocks.
fn set_ring_up(rig: &Rig) {
    let bytes = RING_BYTES as u64;
    let run = MapRun {
        file: Arc::new(sealed_memfd(c"test", bytes).unwrap().into()),
        offset: 0,
        length: bytes,
    };
    let mapped = rig.session.regions.map(9, RING, bytes, &[run]);
    assert_eq!(mapped, status::OK);
    rig.works(request::gpgpuRingSetup { address: RING }, rig.contexts[0]);
}

/// This holds for any context in the command's header: none, another one, or that of its stream.
#[test]
fn without_a_grant_no_command_reaches_the_gpu() {
    let rig = Rig::new();
    set_ring_up(&rig);
    let session = rig.session;
    let lease = share(session);
    let operations = operations();
    let give = OPERATIONS.iter().filter(|of| of.gives() != Gives::Nothing);
    assert_eq!(operations.len(), give.count());

    let [own, other] = rig.contexts;
    let over = Arc::<AtomicUsize>::default();
    let commands: Vec<_> = operations
        .iter()
        .flat_map(|(op, name, make)| {
            [0, other, own].map(|context| (*name, context, command(*op, context, &make(&rig))))
        })
        .collect();
    let before = double::all_calls().len();
    let threads: Vec<_> = commands
        .iter()
        .map(|(_, _, command)| {
            let (command, over) = (command.clone(), Arc::clone(&over));
            thread::spawn(move || {
                let result = run(session, &command);
                over.fetch_add(1, SeqCst);
                result
            })
        })
        .collect();
    while lease.wants.load(SeqCst) as usize + over.load(SeqCst) < threads.len() {
        thread::yield_now();
    }
    let reached = double::all_calls().split_off(before);
    assert_eq!(reached, [""; 0], "without a grant");
    assert!(lease.wants.load(SeqCst) as usize > 2 * operations.len());

    let grant = |mode| {
        lease.grant.store(NUMBER | mode, SeqCst);
        futex::wake(&lease.grant);
    };
    grant(grant::OPEN);
    for (thread, (name, context, _)) in threads.into_iter().zip(&commands) {
        let result = thread.join().unwrap();
        // A command without a stream and a context cannot run.
        let is_fine = [CUDA_SUCCESS, CUDA_ERROR_INVALID_CONTEXT].contains(&result)
            || names_no_event(name) && result == CUDA_ERROR_INVALID_HANDLE;
        assert!(is_fine, "{name} in context {context:#x}: {result}");
    }
    for (op, name, make) in operations {
        let command = command(op, own, &make(&rig));
        if names_no_event(name) {
            assert_eq!(run(session, &command), CUDA_ERROR_INVALID_HANDLE, "{name}");
            continue;
        }
        let before = double::calls_here();
        assert_eq!(run(session, &command), CUDA_SUCCESS, "{name}");
        assert!(double::calls_here() > before, "{name} does nothing");
    }
    // No thread of this session may call the driver after its test.
    grant(grant::CLOSED);
    while lease.returned.load(SeqCst) != NUMBER {
        thread::yield_now();
    }
    assert_eq!(double::wrong(), [""; 0]);
}

/// Whether a command needs a shared event, of which the client here has none: it passes the gate, and then fails.
fn names_no_event(name: &str) -> bool {
    matches!(name, "gpgpuIpcEventRecord" | "gpgpuIpcEventWait")
}

/// The content of a valid command of a composed function; `None` for functions that this test does not compose.
fn composed(of: &libraries::Function) -> Option<Vec<u8>> {
    use libraries::cublaslt::{
        attributes::Class,
        form::{Described, Formed, Operands, Scalar, put_plan, put_product, put_transformation},
    };
    use libraries::cusparselt::form::{self as sparse, Form};
    let new = |class: Class| class.defaults().to_vec();
    let [operation, transform, layout] =
        [Class::Operation, Class::Transform, Class::Layout].map(new);
    let scalars = [Scalar::Here([0; 2]); 2];
    let described = Described {
        operation: &operation,
        emulation: None,
        layouts: [&layout; 4],
    };
    let operands = Operands {
        scalars,
        matrices: [256; 4],
        workspace: (0, 0),
    };
    let mut writer = Writer::new();
    let sink = &mut Formed::new(of.operation.op, &mut writer);
    match of.operation.name {
        "cusparseLtMatmul" | "cusparseLtMatmulSearch" => {
            return Some([sparse::Scalar::Here(0); 2].bytes());
        }
        "nvjpegJpegStreamParse" => return Some(vec![0xff, 0xd8]),
        "cusparseLtMatmulPlanInit" => return Some(sparse::Selection::default().bytes()),
        "cusparseLtSpMMAPrune" | "cusparseLtSpMMAPruneCheck" => {
            return Some(sparse::Product::default().bytes());
        }
        "cusparseLtSpMMAPrune2" | "cusparseLtSpMMAPruneCheck2" | "cusparseLtSpMMACompress2" => {
            return Some(sparse::Matrix::default().bytes());
        }
        "cublasLtMatmul" => put_product(sink, &described, None, &operands),
        "gpgpuLtPlan" => put_plan(sink, &described, None),
        "gpgpuLtPlanMatmul" => operands.put(sink),
        "cublasLtMatrixTransform" => {
            let layouts = [Some(&layout); 3];
            put_transformation(sink, &transform, layouts, scalars, [256; 3]);
        }
        _ => return None,
    }
    Some(writer.into_bytes())
}

/// The classes of plans and of nvJPEG's objects, and the functions that make them with a handle.
const PLANS: [(Class, &str); 8] = [
    (Class::CusparseLtPlan, "cusparseLtMatmulPlanInit"),
    (Class::CublasLtPlan, "gpgpuLtPlan"),
    (Class::NvjpegState, "nvjpegJpegStateCreate"),
    (Class::NvjpegDecoder, "nvjpegDecoderCreate"),
    (Class::NvjpegStream, "nvjpegJpegStreamCreate"),
    (Class::NvjpegDecodeParams, "nvjpegDecodeParamsCreate"),
    (Class::NvjpegEncoderState, "nvjpegEncoderStateCreate"),
    (Class::NvjpegEncoderParams, "nvjpegEncoderParamsCreate"),
];

/// The class of the plan that an argument names, and the function that makes it.
fn plan(kind: &Kind) -> Option<(Class, &'static str)> {
    let is_of = |class| [Kind::New(class), Kind::Object(class), Kind::Gone(class)].contains(kind);
    PLANS.into_iter().find(|(class, _)| is_of(*class))
}

/// The id of the plan for a handle.
fn plan_of(class: Class, handle: u64) -> u64 {
    handle & !0xff | u64::from(class.number())
}

/// A valid command of a library's function, on a handle of its own.
fn library_command(rig: &Rig, of: &libraries::Function, handle: u64, context: u64) -> Vec<u8> {
    let words: Vec<u64> = of
        .kinds
        .iter()
        .zip(of.operation.description().arguments)
        .map(|(kind, argument)| match kind {
            Kind::New(class) | Kind::Object(class) | Kind::Gone(class) if plan(kind).is_some() => {
                plan_of(*class, handle)
            }
            Kind::Handle(_) | Kind::New(_) | Kind::Gone(_) => handle,
            Kind::Object(_) => 0,
            Kind::Stream => rig.streams[0],
            // Single precision.
            _ if argument.name == "computeType" => 68,
            Kind::I32 | Kind::I64 => 1,
            _ => rig.alloc(),
        })
        .collect();
    let mut writer = Writer::new();
    let blob = composed(of).unwrap_or_default();
    call::put_with(of, &words, &blob, PointerMode::Host, &mut writer, |_, _| {}).unwrap();
    command(of.operation.op, context, &writer.into_bytes())
}

/// Each is called on a handle with a stream, with any context in the command's header.
#[test]
fn without_a_grant_no_call_of_a_library_reaches_the_gpu() {
    let rig = Rig::new();
    let session = rig.session;
    let [own, other] = rig.contexts;
    let work = || libraries::functions().filter(|of| of.operation.gives() != Gives::Nothing);
    assert!(work().all(|of| of.handle().is_some()));
    let commands: Vec<_> = (0..)
        .zip(work().filter(|of| !of.is_composed() || composed(of).is_some()))
        .map(|(serial, of)| {
            let (_, class) = of.handle().unwrap();
            let handle = class.id(serial);
            let makes = |of: &&libraries::Function| of.makes().is_some_and(|(_, of)| of == class);
            let creates = libraries::functions().find(makes).unwrap();
            // Other functions name their streams.
            let sets_stream = class.sets_stream();
            let sets_stream = sets_stream.map(|name| creates.library().find(name));
            let plans = of.kinds.iter().filter_map(plan);
            let plans = plans.map(|(_, name)| creates.library().find(name));
            let firsts = [Some(creates), sets_stream].into_iter().flatten();
            // A stream can be decoded once it has got a JPEG.
            let stream = Kind::Object(Class::NvjpegStream);
            let parses = of.kinds.contains(&stream);
            let parses = parses.then(|| Library::Nvjpeg.find("nvjpegJpegStreamParse"));
            for first in firsts.chain(plans).chain(parses) {
                let first = library_command(&rig, first, handle, own);
                assert_eq!(run(session, &first), CUDA_SUCCESS);
            }
            let header = [own, other, 0][serial as usize % 3];
            (of.operation.name, library_command(&rig, of, handle, header))
        })
        .collect();

    let lease = share(session);
    let before = double::all_calls().len();
    let over = Arc::<AtomicUsize>::default();
    let threads: Vec<_> = commands
        .iter()
        .map(|(_, command)| {
            let (command, over) = (command.clone(), Arc::clone(&over));
            thread::spawn(move || {
                let before = double::calls_here();
                let result = run(session, &command);
                over.fetch_add(1, SeqCst);
                (result, double::calls_here() - before)
            })
        })
        .collect();
    while lease.wants.load(SeqCst) as usize + over.load(SeqCst) < threads.len() {
        thread::yield_now();
    }
    let mut reached = double::all_calls().split_off(before);
    reached.retain(|name| *name == double::LIBRARY);
    assert_eq!(reached, [""; 0], "without a grant");
    assert_eq!(over.load(SeqCst), 0);

    lease.grant.store(NUMBER | grant::OPEN, SeqCst);
    futex::wake(&lease.grant);
    for (thread, (name, _)) in threads.into_iter().zip(&commands) {
        let (result, calls) = thread.join().unwrap();
        assert_eq!(result, CUDA_SUCCESS, "{name}");
        assert!(calls > 0, "{name} does nothing");
    }
    lease.grant.store(NUMBER | grant::CLOSED, SeqCst);
    futex::wake(&lease.grant);
    while lease.returned.load(SeqCst) != NUMBER {
        thread::yield_now();
    }
    assert_eq!(double::wrong(), [""; 0]);
}

/// Another thread of the guest destroys the plan, but the library may read its descriptors until the call returns.
#[test]
fn a_plan_is_ended_after_the_product_that_uses_it() {
    let rig = Rig::new();
    let (session, context) = (rig.session, rig.contexts[0]);
    let handle = Class::CublasLtHandle.id(1);
    let command = |name| library_command(&rig, Library::CublasLt.find(name), handle, context);
    for first in ["cublasLtCreate", "gpgpuLtPlan"] {
        assert_eq!(run(session, &command(first)), CUDA_SUCCESS, "{first}");
    }
    let begin = |name| {
        let command = command(name);
        thread::spawn(move || run(session, &command))
    };
    let held = double::hold(double::LIBRARY);
    let product = begin("gpgpuLtPlanMatmul");
    held.wait();
    double::forget_calls();
    let forget = begin("gpgpuLtPlanForget");
    assert!(!double::is_called(double::LIBRARY, A_WHILE));
    drop(held);
    assert_eq!(product.join().unwrap(), CUDA_SUCCESS);
    assert_eq!(forget.join().unwrap(), CUDA_SUCCESS);
    // The operation's descriptor and four layouts.
    assert_eq!(double::calls(double::LIBRARY), 5);
    assert_eq!(double::wrong(), [""; 0]);
}
