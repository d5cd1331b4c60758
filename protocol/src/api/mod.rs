// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The API table: every operation of the protocol, in one place.
//!
//! [`with_api!`](crate::with_api) passes the table to a macro of the caller's choice. From it come the requests and
//! replies below, the guest library's exported symbols, the worker's dispatch, the list by which guest and host
//! determine their common operations, the compatibility page and the specification's annex.
//!
//! An entry consists of: its documentation, which the specification's annex repeats, number, completion, style, name,
//! the name of its per-thread-default-stream variant if it has one, its arguments with their encodings ([`Arg`]), and
//! its properties.
//!
//! * Completion: `post` has no answer unless one is requested, and the client's next `wait` reports an error of it;
//!   `call` is answered as soon as it was issued; `fence` is issued in order, and complete when the GPU has done all
//!   earlier work of its stream or context; `wait` may block in the driver, so the worker runs it beside the stream
//!   while other guest threads continue.
//! * Style: `plain` means that both sides are generated from the entry; `guest` that the guest's symbol is written by
//!   hand (in the file of its object) and the worker's side is generated; `worker` that the guest's symbol is generated
//!   and the worker's side is written by hand; `custom` that both are written by hand.
//! * Properties ([`Property`]), at the end of the entry: `work` or `order` means that the operation submits work to the
//!   GPU ([`Gives`]).
//!
//! Numbers and layouts never change. Guests and hosts of different versions determine their common operations
//! ([`issued`]): an issued entry keeps its number, its arguments and the fields of all structures in it. A change is a
//! new entry.

mod arguments;
pub mod issued;
mod sensors;
mod structures;
mod table;

pub use arguments::*;
pub use sensors::Sensor;
pub use structures::*;

use crate::{
    codec::{Blob, Shape, Wire},
    libraries, wire_struct, with_api,
};

/// The time of an operation's answer; see the module's documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completion {
    /// There is no answer, unless the caller requests one.
    Post,
    /// The answer is sent once the operation was issued.
    Call,
    /// The answer is sent once the GPU has done the work that was issued before.
    Fence,
    /// The answer is sent once the operation is complete.
    Wait,
}

impl Completion {
    /// The table's word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Post => "post",
            Self::Call => "call",
            Self::Fence => "fence",
            Self::Wait => "wait",
        }
    }
}

/// The kind of GPU work of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gives {
    /// Nothing that can be delayed: a query, a wait, or a call whose use of the GPU is internal to the driver (an
    /// allocation's page tables, the code and the globals of a module).
    Nothing,
    /// A mark in a stream, or a wait for one: an event, a stream-ordered free.
    Order,
    /// A copy, a fill, a kernel or a host function.
    Work,
}

macro_rules! properties {
    ($($(#[doc = $doc:literal])* $word:ident $name:ident;)*) => {
        /// A property of an operation. In the table it is a word.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Property {
            $($(#[doc = $doc])* $name,)*
        }

        impl Property {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The table's word for it.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($word),)*
                }
            }

            /// Its documentation, line by line.
            pub const fn doc(self) -> &'static [&'static str] {
                match self {
                    $(Self::$name => &[$($doc),*],)*
                }
            }
        }

        macro_rules! property {
            $(($word) => { Property::$name };)*
        }
    };
}

properties! {
    /// It gives the GPU work: a copy, a fill, a kernel or a host function.
    work Work;
    /// It orders work: it puts a mark into a stream, or a wait for one.
    order Order;
    /// It is about the client itself: it depends on no context and on no earlier command, and uses the command queue.
    client Client;
    /// It names all that it is about, such as a device, and needs no current context: the header's may have ended.
    device Device;
    /// Its answer depends on the form of the call alone: not on addresses, nor on results of the GPU.
    pure Pure;
    /// It looks up, makes or ends memory by its address.
    memory Memory;
    /// Its bytes reach device memory after its caller has continued, at a time that the host learns only by a later command
    /// in the stream.
    write Write;
    /// It gives the GPU work for whose end its caller waits.
    waited Waited;
    /// It orders work, and the host sees the end of that work.
    mark Mark;
    /// It uses a data block of the ring: it is never executed twice, and the guest must know when the block is free.
    block Block;
    /// It reports an earlier command's deferred error, as the functions of CUDA do that synchronise or copy.
    observes Observes;
    /// It reads data beside the stream: the `in` of its chain.
    input Input;
    /// It writes data beside the stream: the `out` of its chain.
    output Output;
    /// Its data may be longer than that of one chain: then it travels as a transfer, and the operation adds `data_offset` to
    /// the address in its arguments.
    transfer Transfer;
}

/// Properties of an operation, a bit for each: calls ask for some.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Properties(u32);

impl Properties {
    /// These properties.
    pub const fn of(all: &[Property]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < all.len() {
            bits |= 1 << all[at] as u32;
            at += 1;
        }
        Self(bits)
    }

    /// Whether one is among them.
    #[inline]
    pub const fn has(self, property: Property) -> bool {
        self.0 >> property as u32 & 1 != 0
    }

    /// Each of them.
    pub fn iter(self) -> impl Iterator<Item = Property> {
        let all = Property::ALL.iter().copied();
        all.filter(move |of| self.has(*of))
    }
}

/// One argument of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Argument {
    /// Its name.
    pub name: &'static str,
    /// Its form: an [`Arg`] of [`arguments`](self), as the table writes it.
    pub travels: &'static str,
}

/// One entry of the table: the part that a program needs as it runs.
#[derive(Debug, PartialEq, Eq)]
pub struct Operation {
    /// Its number.
    pub op: u16,
    /// Its completion.
    pub completion: Completion,
    /// Its name: the CUDA function's symbol, or a name of ours.
    pub name: &'static str,
    /// Its properties.
    pub properties: Properties,
    /// Whether every ring accepts it.
    pub rings: bool,
    /// Whether a wide ring (`gpgpuRingWide`) accepts it.
    pub rings_wide: bool,
}

/// The rest of an entry, for pages, for tests and for the layout number. It is separate, so that no library and no
/// program contains it: the descriptions of all operations contain a megabyte of addresses, which the loader would
/// relocate in every process.
#[derive(Debug, PartialEq, Eq)]
pub struct Description {
    /// The operation's style: `plain`, `guest`, `worker` or `custom`.
    pub style: &'static str,
    /// Its documentation, line by line.
    pub doc: &'static [&'static str],
    /// The symbol of the variant with per-thread default streams, if it is generated from the table.
    pub per_thread: &'static [&'static str],
    /// Its arguments.
    pub arguments: &'static [Argument],
    /// The fields of its request.
    pub request: &'static Shape,
    /// The fields of its reply.
    pub reply: &'static Shape,
}

impl Operation {
    /// Whether it has a property.
    #[inline]
    pub const fn is(&self, property: Property) -> bool {
        self.properties.has(property)
    }

    /// Its GPU work.
    pub const fn gives(&self) -> Gives {
        if self.is(Property::Work) {
            Gives::Work
        } else if self.is(Property::Order) {
            Gives::Order
        } else {
            Gives::Nothing
        }
    }

    /// Whether it concerns the current context.
    pub const fn needs_context(&self) -> bool {
        !self.is(Property::Client) && !self.is(Property::Device)
    }

    /// Whether the GPU may have work of it after it was sent whose completion the host can observe.
    pub const fn leaves_work(&self) -> bool {
        match self.gives() {
            Gives::Work => !self.is(Property::Write) && !self.is(Property::Waited),
            Gives::Order => self.is(Property::Mark),
            Gives::Nothing => false,
        }
    }

    /// The rest of its entry. Using it links the descriptions of all operations into the program.
    ///
    /// # Panics
    ///
    /// If the operation is in no table.
    pub fn description(&self) -> &'static Description {
        description(self.op).expect("every operation of a table has a description")
    }

    /// A number that identifies the encoding: its completion, and names and types in its request and its reply,
    /// including the fields of structures (FNV-1a, 64 bits, over [`Shape::hash`]). Programs take these numbers from
    /// [`issued`], which a test compares with this one.
    ///
    /// # Panics
    ///
    /// As [`Operation::description`].
    pub fn layout(&self) -> u64 {
        let hash = crate::codec::fnv(crate::codec::FNV, self.completion.word().as_bytes());
        let description = self.description();
        description.reply.hash(description.request.hash(hash))
    }
}

/// The request of one operation.
pub trait Request: Wire {
    /// Its reply.
    type Reply: Wire;
    /// Its entry of the table.
    const OPERATION: &'static Operation;
    /// The operation's number.
    const OP: u16 = Self::OPERATION.op;
    /// The operation's name.
    const NAME: &'static str = Self::OPERATION.name;
    /// Its GPU work.
    const GIVES: Gives = Self::OPERATION.gives();

    /// The id of its first stream argument; `None` if it has none.
    #[inline]
    fn stream(&self) -> Option<u64> {
        None
    }
}

/// Whether every ring accepts an operation with this completion, these properties and this reply: not if it may block,
/// may have a long answer, or concerns the client itself and so does not depend on the stream.
const fn rings(completion: Completion, is_about_client: bool, has_short_reply: bool) -> bool {
    !is_about_client && !matches!(completion, Completion::Wait) && has_short_reply
}

/// Whether a wide ring accepts an operation with these properties: not if it has data beside the stream, or concerns
/// the client itself.
const fn rings_wide(properties: Properties) -> bool {
    !properties.has(Property::Client)
        && !properties.has(Property::Input)
        && !properties.has(Property::Output)
}

macro_rules! completion {
    (post) => {
        Completion::Post
    };
    (call) => {
        Completion::Call
    };
    (fence) => {
        Completion::Fence
    };
    (wait) => {
        Completion::Wait
    };
}

macro_rules! define {
    ($($(#[doc = $doc:literal])* $op:literal $completion:ident $style:ident $name:ident $($per_thread:ident)? ($($arg:ident : $ty:ty),*) $($is:ident)*;)*) => {
        /// The requests. An argument has its type [`Arg::Request`].
        #[allow(non_camel_case_types, non_snake_case, missing_docs)]
        pub mod request {
            use super::*;
            wire_struct! {$(
                $(#[doc = $doc])*
                #[derive(Debug, Clone)]
                pub struct $name { $(pub $arg: <$ty as Arg>::Request,)* }
            )*}
            $(impl $name {
                /// The rest of its entry of the table.
                pub(super) const DESCRIPTION: &'static Description = &Description {
                    style: stringify!($style),
                    doc: &[$($doc),*],
                    per_thread: &[$(stringify!($per_thread))?],
                    arguments: &[$(Argument { name: stringify!($arg), travels: stringify!($ty) }),*],
                    request: <Self as Wire>::SHAPE,
                    reply: <reply::$name as Wire>::SHAPE,
                };
            }

            impl Request for $name {
                type Reply = reply::$name;
                const OPERATION: &'static Operation = &Operation {
                    op: $op,
                    completion: completion!($completion),
                    name: stringify!($name),
                    properties: Properties::of(&[$(property!($is)),*]),
                    rings: rings(
                        completion!($completion),
                        Properties::of(&[$(property!($is)),*]).has(Property::Client),
                        <reply::$name as Wire>::BOUNDED,
                    ),
                    rings_wide: rings_wide(Properties::of(&[$(property!($is)),*])),
                };

                #[inline]
                fn stream(&self) -> Option<u64> {
                    let named: Option<u64> = None;
                    $(let named = named.or_else(|| <$ty as Arg>::stream(&self.$arg));)*
                    named
                }
            })*
        }

        /// The replies. An argument has its type [`Arg::Reply`].
        #[allow(non_camel_case_types, non_snake_case, missing_docs)]
        pub mod reply {
            use super::*;
            wire_struct! {$(
                #[derive(Debug, Clone, Default)]
                pub struct $name { $(pub $arg: <$ty as Arg>::Reply,)* }
            )*}
        }

        /// Every operation of this table, in order; [`libraries::functions`] has those of libraries.
        pub const OPERATIONS: &[&Operation] = &[$(<request::$name as Request>::OPERATION),*];

        /// The operation with this number, or `None` if there is none.
        pub fn operation(op: u16) -> Option<&'static Operation> {
            match op {
                $($op => Some(<request::$name as Request>::OPERATION),)*
                _ => libraries::function(op).map(|(_, function)| &function.operation),
            }
        }

        /// The description of the operation with this number, or `None` if there is none ([`Operation::description`]).
        pub fn description(op: u16) -> Option<&'static Description> {
            match op {
                $($op => Some(request::$name::DESCRIPTION),)*
                _ => libraries::description(op),
            }
        }
    };
}

with_api!(define);

/// Every operation, including those of libraries.
pub fn all_operations() -> impl Iterator<Item = &'static Operation> {
    let libraries = libraries::functions().map(|function| &function.operation);
    OPERATIONS.iter().copied().chain(libraries)
}

/// Whether the operation with this number has a property; `false` if there is none.
pub fn is(op: u16, property: Property) -> bool {
    operation(op).is_some_and(|operation| operation.is(property))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::CUdevice;

    #[test]
    fn numbers_and_names_are_unique() {
        let all: Vec<_> = all_operations().collect();
        for (i, operation) in all.iter().enumerate() {
            for other in &all[..i] {
                assert_ne!(
                    operation.op, other.op,
                    "{} and {}",
                    operation.name, other.name
                );
                assert_ne!(operation.name, other.name);
            }
        }
    }

    #[test]
    fn a_request_says_which_stream_it_names() {
        let launch = request::cuGraphLaunch {
            hGraphExec: 1,
            hStream: 7,
        };
        assert_eq!(launch.stream(), Some(7));
        let peer = request::cuMemcpyPeerAsync {
            dstDevice: 1,
            dstContext: 2,
            srcDevice: 3,
            srcContext: 4,
            ByteCount: 5,
            hStream: 6,
        };
        assert_eq!(peer.stream(), Some(6));
        let copy = request::cuMemcpy {
            dst: 1,
            src: 2,
            ByteCount: 3,
        };
        assert_eq!(copy.stream(), None);
    }

    #[test]
    fn an_id_contains_its_kind() {
        let id = object_id::<Event>(7);
        assert_eq!(object_kind(id), Event::KIND);
        assert!(!Event::SPECIAL.contains(&id));
        assert_ne!(id, object_id::<Stream>(7));
    }

    #[test]
    fn a_devices_own_pool_differs_from_created_pools() {
        for device in [0, 7, CUdevice::MAX] {
            let id = default_pool(device);
            assert_eq!(object_kind(id), MemPool::KIND);
            assert_eq!(device_of_default_pool(id), Some(device));
        }
        for id in [
            0,
            object_id::<MemPool>(1),
            default_pool(0) + 1,
            default_pool(-1),
        ] {
            assert_eq!(device_of_default_pool(id), None, "{id:#x}");
        }
    }
}
