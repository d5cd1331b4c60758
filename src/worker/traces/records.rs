// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Records of work, from CUPTI's buffers to the guest's next question.

use std::{
    collections::{HashMap, VecDeque},
    ffi::{CStr, c_char, c_void},
};

use gpgpu_protocol::{
    api::{
        TracedWork,
        traced_work::{COPY, FILL, GRAPH, KERNEL},
    },
    cupti::{
        CUSTOM0, ExternalCorrelation, GraphTrace, Kernel, Memcpy, MemcpyPeer, Memset, kind,
        memory_kind,
    },
};

/// The maximum number of records that are kept; further ones are dropped, and counted.
const MOST_WORKS: usize = 1 << 18;
/// The number of CUPTI's latest numbers of calls that are kept with the client's.
const CALLS: usize = 1 << 18;
/// The maximum number of bytes of names, with [`NAME_COSTS`] for each.
const MOST_NAMES: usize = 16 << 20;
/// The memory of a name beside its bytes, about.
const NAME_COSTS: usize = 128;
/// The maximum length of a name in bytes; a longer one is cut.
const LONGEST_NAME: usize = 16 << 10;
/// The maximum bytes of records and names in an answer, which must fit with its headers.
const MOST_ANSWER: usize = 48 << 10;
/// The bytes of a record in an answer: 8 for each field.
const WORK_BYTES: usize = 8 * 31;
/// The number of flushes for which a record waits for its call. CUPTI returns a thread's buffer with the next flush if
/// the thread was in a call.
const PATIENCE: u32 = 3;

/// The fields that records of all kinds have, of the record at a pointer.
macro_rules! placed {
    ($of:ident, $kind:ident) => {
        TracedWork {
            kind: $kind,
            start: (*$of).start,
            end: (*$of).end,
            device: (*$of).device,
            context: (*$of).context,
            stream: (*$of).stream,
            graph: (*$of).graph,
            from_device: (*$of).device,
            to_device: (*$of).device,
            ..TracedWork::default()
        }
    };
}

/// The records of an answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// The records.
    pub works: Vec<TracedWork>,
    /// Names that no earlier answer had.
    pub names: Vec<String>,
    /// The number of records that were lost so far.
    pub dropped: u64,
    /// Whether there are more records.
    pub has_more: bool,
}

/// A record whose call is not known yet.
#[derive(Debug)]
struct Open {
    /// CUPTI's number of the call.
    correlation: u32,
    /// The number of flushes since.
    flushes: u32,
    work: TracedWork,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Records {
    open: VecDeque<Open>,
    ready: VecDeque<TracedWork>,
    /// CUPTI's number and the client's, by the former modulo [`CALLS`].
    calls: Vec<(u32, u32)>,
    names: HashMap<String, u32>,
    /// Names for the next answer.
    new_names: VecDeque<String>,
    name_bytes: usize,
    dropped: u64,
}

impl Records {
    /// Prepares for records.
    pub fn begin(&mut self) {
        self.calls.resize(CALLS, (0, 0));
    }

    /// Counts records that CUPTI has lost.
    pub fn drop_more(&mut self, count: u64) {
        self.dropped = self.dropped.saturating_add(count);
    }

    /// Adds a record of CUPTI's.
    ///
    /// # Safety
    ///
    /// The address has a record with the layout of its kind.
    pub unsafe fn add(&mut self, record: *const c_void) {
        // SAFETY: every record begins with its kind, and has at least the fields that are read here. Records are
        // aligned to eight bytes.
        unsafe {
            match record.cast::<u32>().read() {
                kind::EXTERNAL_CORRELATION => self.link(&*record.cast()),
                kind::KERNEL | kind::CONCURRENT_KERNEL => self.add_kernel(record.cast()),
                kind::MEMCPY => self.add_copy(record.cast()),
                kind::MEMCPY2 => self.add_peer_copy(record.cast()),
                kind::MEMSET => self.add_fill(record.cast()),
                kind::GRAPH_TRACE => self.add_graph(record.cast()),
                // Calls, whose records only make those of their external ids come.
                _ => {}
            }
        }
    }

    fn link(&mut self, record: &ExternalCorrelation) {
        if record.external_kind == CUSTOM0
            && let Ok(call) = u32::try_from(record.external)
            && let Some(place) = self.calls.get_mut(record.correlation as usize % CALLS)
        {
            *place = (record.correlation, call);
        }
    }

    fn call(&self, correlation: u32) -> Option<u32> {
        let place = self.calls.get(correlation as usize % CALLS)?;
        (place.0 == correlation && place.1 != 0).then_some(place.1)
    }

    fn push(&mut self, correlation: u32, work: TracedWork) {
        if self.open.len() + self.ready.len() >= MOST_WORKS {
            self.drop_more(1);
            return;
        }
        self.open.push_back(Open {
            correlation,
            flushes: 0,
            work,
        });
    }

    // Only fields are read that all versions of a record have, so no reference to the whole record is made.

    unsafe fn add_kernel(&mut self, of: *const Kernel) {
        // SAFETY: promised by the caller, as in the functions below; the name is NULL or a string of CUPTI's.
        let (correlation, work) = unsafe {
            let name = self.name((*of).name);
            let ([grid_x, grid_y, grid_z], [block_x, block_y, block_z], cluster) =
                ((*of).grid, (*of).block, (*of).cluster);
            let work = TracedWork {
                name,
                grid_x: grid_x as u32,
                grid_y: grid_y as u32,
                grid_z: grid_z as u32,
                block_x: block_x as u32,
                block_y: block_y as u32,
                block_z: block_z as u32,
                cluster_x: cluster[0],
                cluster_y: cluster[1],
                cluster_z: cluster[2],
                registers: (*of).registers_per_thread.into(),
                static_shared: (*of).static_shared as u32,
                dynamic_shared: (*of).dynamic_shared as u32,
                local: (*of).local_per_thread,
                node: (*of).graph_node,
                ..placed!(of, KERNEL)
            };
            ((*of).correlation, work)
        };
        self.push(correlation, work);
    }

    unsafe fn add_copy(&mut self, of: *const Memcpy) {
        // SAFETY: as above.
        let (correlation, work) = unsafe {
            let work = TracedWork {
                bytes: (*of).bytes,
                copy: (*of).copy_kind.into(),
                from: (*of).from_kind.into(),
                to: (*of).to_kind.into(),
                flags: (*of).flags.into(),
                node: (*of).graph_node,
                ..placed!(of, COPY)
            };
            ((*of).correlation, work)
        };
        self.push(correlation, work);
    }

    unsafe fn add_peer_copy(&mut self, of: *const MemcpyPeer) {
        // SAFETY: as above.
        let (correlation, work) = unsafe {
            let work = TracedWork {
                bytes: (*of).bytes,
                copy: (*of).copy_kind.into(),
                from: (*of).from_kind.into(),
                to: (*of).to_kind.into(),
                from_device: (*of).from_device,
                to_device: (*of).to_device,
                flags: (*of).flags.into(),
                node: (*of).graph_node,
                ..placed!(of, COPY)
            };
            ((*of).correlation, work)
        };
        self.push(correlation, work);
    }

    unsafe fn add_fill(&mut self, of: *const Memset) {
        // SAFETY: as above.
        let (correlation, work) = unsafe {
            let work = TracedWork {
                bytes: (*of).bytes,
                from: memory_kind::UNKNOWN.into(),
                to: (*of).memory_kind.into(),
                flags: (*of).flags.into(),
                value: (*of).value,
                node: (*of).graph_node,
                ..placed!(of, FILL)
            };
            ((*of).correlation, work)
        };
        self.push(correlation, work);
    }

    unsafe fn add_graph(&mut self, of: *const GraphTrace) {
        // SAFETY: as above.
        let (correlation, work) = unsafe { ((*of).correlation, placed!(of, GRAPH)) };
        self.push(correlation, work);
    }

    /// The number of a name; 0 for none, or if there is no room for it.
    ///
    /// # Safety
    ///
    /// The pointer is NULL or a string.
    unsafe fn name(&mut self, name: *const c_char) -> u32 {
        if name.is_null() {
            return 0;
        }
        // SAFETY: promised by the caller.
        let bytes = unsafe { CStr::from_ptr(name) }.to_bytes();
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(LONGEST_NAME)]);
        if let Some(number) = self.names.get(text.as_ref()) {
            return *number;
        }
        let bytes = self.name_bytes + NAME_COSTS + text.len();
        if bytes > MOST_NAMES {
            return 0;
        }
        self.name_bytes = bytes;
        let number = self.names.len() as u32 + 1;
        self.names.insert(text.clone().into_owned(), number);
        self.new_names.push_back(text.into_owned());
        number
    }

    /// Takes records and names for an answer; `was_flushed`: CUPTI has just returned its buffers.
    pub fn take(&mut self, was_flushed: bool) -> Taken {
        self.settle(was_flushed);
        let mut taken = Taken::default();
        let mut bytes = 0;
        // All names come before the records that use them.
        while let Some(name) = self.new_names.front()
            && bytes + name.len() <= MOST_ANSWER
        {
            bytes += 16 + name.len();
            taken.names.extend(self.new_names.pop_front());
        }
        if self.new_names.is_empty() {
            let count = MOST_ANSWER.saturating_sub(bytes) / WORK_BYTES;
            let count = count.min(self.ready.len());
            taken.works.extend(self.ready.drain(..count));
        }
        taken.dropped = self.dropped;
        taken.has_more = !self.ready.is_empty() || !self.new_names.is_empty();
        taken
    }

    /// Finds the calls of open records.
    fn settle(&mut self, was_flushed: bool) {
        let open = std::mem::take(&mut self.open);
        for mut record in open {
            if let Some(call) = self.call(record.correlation) {
                record.work.call = call;
                self.ready.push_back(record.work);
                continue;
            }
            record.flushes += u32::from(was_flushed);
            // After that it is work of this process's own.
            if record.flushes < PATIENCE {
                self.open.push_back(record);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(correlation: u32, name: &CStr) -> Kernel {
        // SAFETY: all zero is a value of it.
        let mut of: Kernel = unsafe { std::mem::zeroed() };
        of.kind = kind::CONCURRENT_KERNEL;
        of.correlation = correlation;
        of.name = name.as_ptr();
        (of.start, of.end) = (10, 20);
        of.grid = [2, 3, 4];
        of
    }

    fn link(correlation: u32, call: u64) -> ExternalCorrelation {
        ExternalCorrelation {
            kind: kind::EXTERNAL_CORRELATION,
            external_kind: CUSTOM0,
            external: call,
            correlation,
            reserved: 0,
        }
    }

    fn add<T>(records: &mut Records, record: &T) {
        // SAFETY: the record has the layout of its kind.
        unsafe { records.add((&raw const *record).cast()) };
    }

    fn records() -> Records {
        let mut records = Records::default();
        records.begin();
        records
    }

    #[test]
    fn work_names_its_call_whichever_record_comes_first() {
        let mut records = records();
        add(&mut records, &link(5, 70));
        add(&mut records, &kernel(5, c"first"));
        add(&mut records, &kernel(6, c"second"));
        let taken = records.take(false);
        assert_eq!(taken.works.len(), 1);
        let work = taken.works[0];
        assert_eq!((work.call, work.name, work.kind), (70, 1, KERNEL));
        assert_eq!((work.start, work.end, work.grid_z), (10, 20, 4));
        assert_eq!(taken.names, ["first", "second"]);
        add(&mut records, &link(6, 71));
        add(&mut records, &kernel(6, c"first"));
        let taken = records.take(false);
        let calls: Vec<_> = taken.works.iter().map(|of| (of.call, of.name)).collect();
        assert_eq!((calls, taken.names), (vec![(71, 2), (71, 1)], vec![]));
    }

    #[test]
    fn work_without_a_call_is_not_the_clients() {
        let mut records = records();
        add(&mut records, &kernel(5, c"own"));
        for _ in 0..PATIENCE {
            assert_eq!(records.take(true).works, []);
        }
        // Too late: it was dropped.
        add(&mut records, &link(5, 70));
        assert_eq!(records.take(true).works, []);
        // A number that was reused for another call is not the old one's.
        add(&mut records, &kernel(5 + CALLS as u32, c"own"));
        assert_eq!(records.take(true).works, []);
    }

    #[test]
    fn an_answer_is_short_and_names_come_before_their_records() {
        let mut records = records();
        let long = std::ffi::CString::new("x".repeat(2 * LONGEST_NAME)).unwrap();
        for correlation in 1..=1000 {
            let name = match correlation {
                1..=4 => std::ffi::CString::new(format!("{correlation}{}", long.to_str().unwrap()))
                    .unwrap(),
                _ => c"kernel".to_owned(),
            };
            add(&mut records, &link(correlation, correlation.into()));
            add(&mut records, &kernel(correlation, &name));
        }
        let (mut names, mut calls) = (0, Vec::new());
        loop {
            let taken = records.take(false);
            let bytes: usize = taken.names.iter().map(|name| name.len() + 16).sum();
            assert!(bytes + taken.works.len() * WORK_BYTES < 60 << 10);
            assert!(taken.names.iter().all(|name| name.len() <= LONGEST_NAME));
            names += taken.names.len();
            calls.extend(taken.works.iter().map(|of| of.call));
            assert!(taken.works.iter().all(|of| of.name as usize <= names));
            if !taken.has_more {
                break;
            }
        }
        assert_eq!((names, calls), (5, (1..=1000).collect()));
    }

    #[test]
    fn records_beyond_the_limit_are_counted() {
        let mut records = records();
        for correlation in 0..MOST_WORKS as u32 + 3 {
            add(&mut records, &kernel(correlation, c"kernel"));
        }
        records.drop_more(4);
        assert_eq!(records.take(false).dropped, 7);
    }

    #[test]
    fn names_beyond_the_limit_are_unknown() {
        let mut records = records();
        let most = MOST_NAMES / (NAME_COSTS + 8);
        for number in 0..most + 3 {
            let name = std::ffi::CString::new(format!("{number:08}")).unwrap();
            // SAFETY: the name is a string.
            let found = unsafe { records.name(name.as_ptr()) };
            assert_eq!(found as usize, if number < most { number + 1 } else { 0 });
        }
        // SAFETY: as above.
        assert_eq!(unsafe { records.name(c"00000000".as_ptr()) }, 1);
    }

    #[test]
    fn a_record_takes_as_many_bytes_as_assumed() {
        let mut writer = gpgpu_protocol::codec::Writer::new();
        writer.put(&TracedWork::default());
        assert_eq!(writer.into_bytes().len(), WORK_BYTES);
    }
}
