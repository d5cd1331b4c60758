// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A process of a VM. It uses CUDA through the guest's library, over the socket in `VIRTIO_GPGPU`, and executes the
//! commands on its standard input.

use std::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    io::{BufRead, Write},
    ptr::null_mut,
    sync::{
        Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use gpgpu_graphs::abi::{
    CUDA_CONDITIONAL_NODE_PARAMS, CUgraphNodeParams, CUgraphNodeParamsOf, kind,
};
use gpgpu_protocol::cuda::*;
use libloading::Library;

/// The variable that makes this program a client: the path of the library.
pub const LIBRARY: &str = "GPGPU_TEST_LIBRARY";
/// The prefix of its lines; the test harness prints others.
pub const MARK: &str = "client: ";

/// `busy` computes for a number of turns and counts itself; `await_flag` runs until a number is nonzero, which
/// `raise_flag` sets.
const KERNELS: &CStr = c"
.version 6.4
.target sm_70
.address_size 64
.visible .entry busy(.param .u64 counter, .param .u32 turns)
{
    .reg .pred %p;
    .reg .b32 %r<5>;
    .reg .b64 %d;
    ld.param.u64 %d, [counter];
    ld.param.u32 %r0, [turns];
    mov.u32 %r1, 0;
    mov.u32 %r2, 1;
again:
    mul.lo.u32 %r2, %r2, 1664525;
    add.u32 %r2, %r2, 1013904223;
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p, %r1, %r0;
    @%p bra again;
    st.global.u32 [%d+4], %r2;
    atom.global.add.u32 %r3, [%d], 1;
    ret;
}
.visible .entry await_flag(.param .u64 flag)
{
    .reg .pred %p;
    .reg .b32 %r;
    .reg .b64 %d;
    ld.param.u64 %d, [flag];
again:
    ld.volatile.global.u32 %r, [%d];
    setp.eq.u32 %p, %r, 0;
    @%p bra again;
    ret;
}
.visible .entry raise_flag(.param .u64 flag)
{
    .reg .b32 %r;
    .reg .b64 %d;
    ld.param.u64 %d, [flag];
    atom.global.exch.b32 %r, [%d], 1;
    ret;
}
";

/// The number of pending kernels in a loop, in two halves.
const DEPTH: usize = 32;

macro_rules! functions {
    ($($name:ident($($kind:ty),*);)*) => {
        /// The functions of CUDA's driver API that the client uses.
        #[allow(non_snake_case)]
        struct Cuda {
            $($name: unsafe extern "C" fn($($kind),*) -> CUresult,)*
        }

        impl Cuda {
            fn load() -> Self {
                // SAFETY: the library is the guest's, and each function has the type that CUDA gives it. It is never
                // unloaded.
                unsafe {
                    let library = Library::new(std::env::var_os(LIBRARY).unwrap()).unwrap();
                    let library: &Library = Box::leak(Box::new(library));
                    Self { $($name: *library.get(stringify!($name).as_bytes()).unwrap(),)* }
                }
            }
        }
    };
}

functions! {
    cuInit(c_uint);
    cuDeviceGet(*mut c_int, c_int);
    cuDevicePrimaryCtxRetain(*mut CUcontext, c_int);
    cuCtxSetCurrent(CUcontext);
    cuModuleLoadData(*mut CUmodule, *const c_char);
    cuModuleGetFunction(*mut CUfunction, CUmodule, *const c_char);
    cuMemAlloc_v2(*mut CUdeviceptr, usize);
    cuMemsetD32_v2(CUdeviceptr, c_uint, usize);
    cuMemcpyDtoH_v2(*mut c_void, CUdeviceptr, usize);
    cuStreamCreate(*mut CUstream, c_uint);
    cuStreamSynchronize(CUstream);
    cuCtxSynchronize();
    cuEventCreate(*mut CUevent, c_uint);
    cuEventRecord(CUevent, CUstream);
    cuEventSynchronize(CUevent);
    cuEventElapsedTime(*mut f32, CUevent, CUevent);
    cuGraphCreate(*mut CUgraph, c_uint);
    cuGraphConditionalHandleCreate(*mut u64, CUgraph, CUcontext, c_uint, c_uint);
    cuGraphAddNode_v2(*mut CUgraphNode, CUgraph, *const CUgraphNode, *const c_void, usize, *mut CUgraphNodeParams);
    cuGraphAddKernelNode_v2(*mut CUgraphNode, CUgraph, *const CUgraphNode, usize, *const CUDA_KERNEL_NODE_PARAMS);
    cuGraphInstantiateWithFlags(*mut CUgraphExec, CUgraph, u64);
    cuGraphLaunch(CUgraphExec, CUstream);
    cuLaunchHostFunc(CUstream, unsafe extern "C" fn(*mut c_void), *mut c_void);
    cuLaunchKernel(CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream, *mut *mut c_void, *mut *mut c_void);
}

#[track_caller]
fn check(code: CUresult) {
    assert_eq!(code, CUDA_SUCCESS);
}

/// A pointer that every thread can use: handles are only numbers for its users.
struct Client {
    cuda: Cuda,
    context: CUcontext,
    busy: CUfunction,
    await_flag: CUfunction,
    raise_flag: CUfunction,
    /// The number of kernels that have counted themselves, and a place for them to write to.
    counter: CUdeviceptr,
    /// The data of two of the kernels.
    flag: CUdeviceptr,
}

// SAFETY: CUDA's handles may be used from every thread.
unsafe impl Sync for Client {}

fn say(text: &str) {
    let mut output = std::io::stdout().lock();
    writeln!(output, "\n{MARK}{text}").unwrap();
    output.flush().unwrap();
}

fn hear() -> Vec<String> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).unwrap();
    line.split_whitespace().map(str::to_owned).collect()
}

impl Client {
    fn on(ordinal: c_int) -> Self {
        let cuda = Cuda::load();
        let (mut device, mut context, mut module) = (0, null_mut(), null_mut());
        let (mut counter, mut flag) = (0, 0);
        let mut functions = [null_mut(); 3];
        // SAFETY: every pointer is to a value that lives across its call.
        unsafe {
            check((cuda.cuInit)(0));
            check((cuda.cuDeviceGet)(&mut device, ordinal));
            check((cuda.cuDevicePrimaryCtxRetain)(&mut context, device));
            check((cuda.cuCtxSetCurrent)(context));
            check((cuda.cuModuleLoadData)(&mut module, KERNELS.as_ptr()));
            for (function, name) in
                functions
                    .iter_mut()
                    .zip([c"busy", c"await_flag", c"raise_flag"])
            {
                check((cuda.cuModuleGetFunction)(function, module, name.as_ptr()));
            }
            check((cuda.cuMemAlloc_v2)(&mut counter, 8));
            check((cuda.cuMemAlloc_v2)(&mut flag, 4));
            check((cuda.cuMemsetD32_v2)(counter, 0, 2));
            check((cuda.cuMemsetD32_v2)(flag, 0, 1));
            check((cuda.cuCtxSynchronize)());
        }
        let [busy, await_flag, raise_flag] = functions;
        Self {
            cuda,
            context,
            busy,
            await_flag,
            raise_flag,
            counter,
            flag,
        }
    }

    /// Makes its context current in the thread.
    fn enter(&self) {
        // SAFETY: the context is this process's.
        check(unsafe { (self.cuda.cuCtxSetCurrent)(self.context) });
    }

    fn stream(&self) -> CUstream {
        let mut stream = null_mut();
        // SAFETY: the pointer is to a value that lives across the call. 1 is CU_STREAM_NON_BLOCKING.
        check(unsafe { (self.cuda.cuStreamCreate)(&mut stream, 1) });
        stream
    }

    fn launch(
        &self,
        function: CUfunction,
        stream: CUstream,
        mut address: CUdeviceptr,
        mut turns: u32,
    ) {
        let mut arguments = [(&raw mut address).cast(), (&raw mut turns).cast::<c_void>()];
        // SAFETY: the kernels take these arguments, or the first of them, and they live across the call.
        check(unsafe {
            (self.cuda.cuLaunchKernel)(
                function,
                1,
                1,
                1,
                1,
                1,
                1,
                0,
                stream,
                arguments.as_mut_ptr(),
                null_mut(),
            )
        });
    }

    fn busy(&self, stream: CUstream, turns: u32) {
        self.launch(self.busy, stream, self.counter, turns);
    }

    fn synchronize(&self, stream: CUstream) -> CUresult {
        // SAFETY: the stream is one of ours.
        unsafe { (self.cuda.cuStreamSynchronize)(stream) }
    }

    /// The number of kernels that have counted themselves.
    fn counted(&self) -> u32 {
        let mut value = 0_u32;
        // SAFETY: the value lives across the call, and has as many bytes.
        check(unsafe { (self.cuda.cuMemcpyDtoH_v2)((&raw mut value).cast(), self.counter, 4) });
        value
    }

    /// Measures the number of turns that take about `wanted` here; also returns the number of launches that this took.
    ///
    /// The GPU measures the time, because on a busy machine a thread may wait for a processor longer than a kernel
    /// runs. The fastest of several counts for the same reason: the software GPU's thread may be interrupted.
    fn turns(&self, stream: CUstream, wanted: Duration) -> (u32, u32) {
        const TIMES: u32 = 5;
        let (begin, end) = (self.event(), self.event());
        let (mut turns, mut launches) = (64_u32, 0);
        loop {
            let each = [(); TIMES as usize].map(|()| self.time(stream, turns, begin, end));
            launches += TIMES;
            let fastest = each.into_iter().min().unwrap();
            if fastest >= wanted || turns >= 1 << 28 {
                return (turns, launches);
            }
            turns *= 2;
        }
    }

    /// The GPU's time for a kernel with so many turns.
    fn time(&self, stream: CUstream, turns: u32, begin: CUevent, end: CUevent) -> Duration {
        let record = self.cuda.cuEventRecord;
        let mut milliseconds = 0.0_f32;
        // SAFETY: the events and the stream are ours, and the pointer is to a value that lives across the call.
        unsafe {
            check(record(begin, stream));
            self.busy(stream, turns);
            check(record(end, stream));
            check(self.synchronize(stream));
            check((self.cuda.cuEventElapsedTime)(
                &mut milliseconds,
                begin,
                end,
            ));
        }
        Duration::from_secs_f32(milliseconds / 1e3)
    }

    fn event(&self) -> CUevent {
        let mut event = null_mut();
        // SAFETY: the pointer is to a value that lives across the call.
        check(unsafe { (self.cuda.cuEventCreate)(&mut event, 0) });
        event
    }
}

/// Serves one test: prints `ready`, executes one line, prints the result.
pub fn run() {
    let client = Client::on(0);
    say("ready");
    let line = hear();
    let number = |index: usize| line[index].parse::<u64>().unwrap();
    match &line[0][..] {
        // `loop MICROSECONDS`: kernels of this duration, until the standard input ends.
        "loop" => {
            let stream = client.stream();
            let (turns, launched) = client.turns(stream, Duration::from_micros(number(1)));
            let done = launched + keep_busy(&client, stream, || client.busy(stream, turns));
            assert_eq!(client.counted(), done);
        }
        // `graph-loop MICROSECONDS`: the same with graphs that have such a kernel on each of two GPUs.
        "graph-loop" => {
            let second = Client::on(1);
            client.enter();
            let stream = client.stream();
            let (turns, launched) = client.turns(stream, Duration::from_micros(number(1)));
            let graph = client.graph(&[&client, &second], turns);
            // SAFETY: the graph and the stream are ours.
            let launch = || check(unsafe { (client.cuda.cuGraphLaunch)(graph, stream) });
            let done = keep_busy(&client, stream, launch);
            assert_eq!(client.counted(), launched + done);
            second.enter();
            assert_eq!(second.counted(), done);
        }
        // `burst COUNT MICROSECONDS`: this number of kernels; prints their total duration in microseconds.
        "burst" => {
            let stream = client.stream();
            let (turns, before) = client.turns(stream, Duration::from_micros(number(2)));
            say("sized");
            hear();
            let begin = Instant::now();
            (0..number(1)).for_each(|_| client.busy(stream, turns));
            check(client.synchronize(stream));
            let took = begin.elapsed().as_micros();
            assert_eq!(u64::from(client.counted()), number(1) + u64::from(before));
            say(&format!("took {took}"));
        }
        "callback" => callback(&client),
        "flag" => later_kernel(&client),
        // `endless`: a kernel that never ends; prints the result of a synchronisation.
        "endless" => {
            let stream = client.stream();
            client.launch(client.await_flag, stream, client.flag, 0);
            say("launched");
            say(&format!("code {}", client.synchronize(stream)));
        }
        // `endless-loop`: the same with a graph, whose body is repeated forever.
        "endless-loop" => {
            let stream = client.stream();
            client.launch_loop(stream);
            say("launched");
            say(&format!("code {}", client.synchronize(stream)));
        }
        other => panic!("{other}"),
    }
    // CUDA is shut down with the process.
}

impl Client {
    /// Adds a kernel of this client's device to a graph.
    fn add_busy(&self, graph: CUgraph, mut turns: u32) {
        let (mut node, mut counter) = (null_mut(), self.counter);
        let mut parameters: [*mut c_void; 2] = [(&raw mut counter).cast(), (&raw mut turns).cast()];
        let launch = CUDA_KERNEL_NODE_PARAMS {
            func: self.busy,
            gridDimX: 1,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: 1,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            kernelParams: parameters.as_mut_ptr(),
            extra: null_mut(),
            kern: null_mut(),
            ctx: self.context,
        };
        let add = self.cuda.cuGraphAddKernelNode_v2;
        // SAFETY: the pointers are to values that live across the call, and the kernel takes these arguments.
        check(unsafe { add(&mut node, graph, std::ptr::null(), 0, &launch) });
    }

    /// A graph with a kernel of each client, without dependencies between them.
    fn graph(&self, clients: &[&Client], turns: u32) -> CUgraphExec {
        let (mut graph, mut exec) = (null_mut(), null_mut());
        // SAFETY: the pointers are to values that live across the calls.
        unsafe {
            check((self.cuda.cuGraphCreate)(&mut graph, 0));
            for client in clients {
                client.add_busy(graph, turns);
            }
            check((self.cuda.cuGraphInstantiateWithFlags)(&mut exec, graph, 0));
        }
        exec
    }

    /// Launches a graph with a short kernel in a body whose condition is always true.
    fn launch_loop(&self, stream: CUstream) {
        const WHILE: u32 = 1;
        const ASSIGN_DEFAULT: u32 = 1;
        let (mut graph, mut exec, mut node) = (null_mut(), null_mut(), null_mut());
        let mut value = 0;
        // SAFETY: the pointers are to values that live across the calls; the driver writes the address of an array with
        // one body.
        unsafe {
            check((self.cuda.cuGraphCreate)(&mut graph, 0));
            let made = self.cuda.cuGraphConditionalHandleCreate;
            check(made(&mut value, graph, self.context, 1, ASSIGN_DEFAULT));
            let mut of = CUgraphNodeParams {
                type_: kind::CONDITIONAL,
                reserved0: [0; 3],
                of: CUgraphNodeParamsOf { reserved: [0; 29] },
                reserved2: 0,
            };
            of.of.conditional = CUDA_CONDITIONAL_NODE_PARAMS {
                handle: value,
                type_: WHILE,
                size: 1,
                phGraph_out: null_mut(),
                ctx: self.context,
            };
            let (none, no_data) = (std::ptr::null(), std::ptr::null());
            let add = self.cuda.cuGraphAddNode_v2;
            check(add(&mut node, graph, none, no_data, 0, &mut of));
            let body = *of.of.conditional.phGraph_out;
            self.add_busy(body, 16);
            check((self.cuda.cuGraphInstantiateWithFlags)(&mut exec, graph, 0));
            check((self.cuda.cuGraphLaunch)(exec, stream));
        }
    }
}

/// Submits work to a stream until the standard input ends; returns how often.
fn keep_busy(client: &Client, stream: CUstream, give: impl Fn()) -> u32 {
    let mut given = 0;
    say("sized");
    hear();
    static OVER: AtomicBool = AtomicBool::new(false);
    std::thread::spawn(|| {
        let mut rest = String::new();
        while std::io::stdin()
            .lock()
            .read_line(&mut rest)
            .is_ok_and(|read| read > 0)
        {}
        OVER.store(true, Ordering::Relaxed);
    });
    let events = [client.event(), client.event()];
    let mut half = 0;
    while !OVER.load(Ordering::Relaxed) {
        (0..DEPTH / 2).for_each(|_| give());
        given += DEPTH as u32 / 2;
        // SAFETY: the events and the stream are ours; one that was never recorded is over.
        unsafe {
            check((client.cuda.cuEventRecord)(events[half % 2], stream));
            check((client.cuda.cuEventSynchronize)(events[(half + 1) % 2]));
        }
        half += 1;
        if half == 2 {
            say("running");
        }
    }
    check(client.synchronize(stream));
    say(&format!("done {given}"));
    given
}

/// A host function that waits for a thread, which launches a kernel and waits for it.
fn callback(client: &Client) {
    static OVER: Mutex<bool> = Mutex::new(false);
    static CHANGED: Condvar = Condvar::new();
    unsafe extern "C" fn until_over(_: *mut c_void) {
        let mut over = OVER.lock().unwrap();
        while !*over {
            over = CHANGED.wait(over).unwrap();
        }
    }
    let (first, second) = (client.stream(), client.stream());
    let (turns, _) = client.turns(first, Duration::from_millis(2));
    say("sized");
    hear();
    for _ in 0..4 {
        *OVER.lock().unwrap() = false;
        client.busy(first, turns);
        // SAFETY: the function uses nothing but two statics.
        check(unsafe { (client.cuda.cuLaunchHostFunc)(first, until_over, null_mut()) });
        client.busy(first, turns);
        std::thread::scope(|scope| {
            let second = second as usize;
            scope.spawn(move || {
                let second = second as CUstream;
                client.enter();
                for _ in 0..4 {
                    client.busy(second, turns);
                    check(client.synchronize(second));
                }
                *OVER.lock().unwrap() = true;
                CHANGED.notify_all();
            });
            check(client.synchronize(first));
        });
    }
    say("over");
}

/// A kernel that runs until a later one, in another stream, has run.
fn later_kernel(client: &Client) {
    let (first, second) = (client.stream(), client.stream());
    let (turns, _) = client.turns(first, Duration::from_millis(2));
    say("sized");
    hear();
    for _ in 0..5 {
        // SAFETY: the flag is memory of this size.
        check(unsafe { (client.cuda.cuMemsetD32_v2)(client.flag, 0, 1) });
        // SAFETY: no arguments.
        check(unsafe { (client.cuda.cuCtxSynchronize)() });
        client.launch(client.await_flag, first, client.flag, 0);
        // Longer than a lease lasts.
        (0..10).for_each(|_| client.busy(second, turns));
        client.launch(client.raise_flag, second, client.flag, 0);
        check(client.synchronize(first));
        check(client.synchronize(second));
    }
    say("over");
}
