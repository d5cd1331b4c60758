//! The objects of libraries: handles, plans, descriptors.

use super::{Function, Library, functions};
use crate::api::{object_id_of, object_kind};

macro_rules! classes {
    ($($(#[doc = $doc:literal])+ $name:ident = $number:literal: $($word:ident $($value:literal)?),+;)*) => {
        /// A type of objects. Its number is the kind in their ids, as with the driver's.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Class {
            $($(#[doc = $doc])+ $name = $number,)*
        }

        impl Class {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            const fn about(self) -> About {
                match self {
                    $(Self::$name => about!(About::of(stringify!($name), &[$($doc),+]); $($word $($value)?),+),)*
                }
            }
        }
    };
}

macro_rules! about {
    ($about:expr; $($word:ident $($value:literal)?),*) => {{
        let about = $about;
        $(let about = about.$word($($value)?);)*
        about
    }};
}

/// What is said of a class.
#[derive(Clone, Copy)]
struct About {
    name: &'static str,
    doc: &'static [&'static str],
    sets_stream: Option<&'static str>,
    sets_pointer_mode: Option<&'static str>,
    device_mib: u64,
    most: usize,
    is_in_context: bool,
    is_handle: bool,
}

impl About {
    const fn of(name: &'static str, doc: &'static [&'static str]) -> Self {
        Self {
            name,
            doc,
            sets_stream: None,
            sets_pointer_mode: None,
            device_mib: 0,
            most: 0,
            is_in_context: true,
            is_handle: false,
        }
    }

    /// It is in the host's memory alone, and so in no context: a descriptor.
    const fn descriptor(mut self) -> Self {
        (self.is_in_context, self.most) = (false, 1 << 18);
        self
    }

    /// It costs the host megabytes: a thousand are enough.
    const fn handle(mut self) -> Self {
        (self.is_handle, self.most) = (true, 1 << 10);
        self
    }

    /// So many there may be at once.
    const fn most(mut self, most: usize) -> Self {
        self.most = most;
        self
    }

    const fn stream(mut self, function: &'static str) -> Self {
        self.sets_stream = Some(function);
        self
    }

    const fn pointer_mode(mut self, function: &'static str) -> Self {
        self.sets_pointer_mode = Some(function);
        self
    }

    const fn mib(mut self, mib: u64) -> Self {
        self.device_mib = mib;
        self
    }
}

// `handle` or `descriptor`; `stream` names the function that says where an object's work goes, which only a handle has; `pointer_mode` the
// one that says where scalars and results are; `mib` is taken of the GPU's memory when one is made.
classes! {
    /// `cublasHandle_t`, which is a `cublasLtHandle_t` too. It took 68 MiB on an H100.
    CublasHandle = 0x90: handle, stream "cublasSetStream_v2", pointer_mode "cublasSetPointerMode_v2", mib 96;
}

impl Class {
    /// The kind in the ids of its objects.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The class with a number; `None` if there is none.
    pub fn from_number(number: u8) -> Option<Self> {
        let mut all = Self::ALL.iter().copied();
        all.find(|class| class.number() == number)
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        self.about().name
    }

    /// What it is.
    pub const fn doc(self) -> &'static [&'static str] {
        self.about().doc
    }

    /// The function that says where an object's work goes; `None` for what gives the GPU no work.
    pub const fn sets_stream(self) -> Option<&'static str> {
        self.about().sets_stream
    }

    /// The function that says where scalars and results are; `None` if they are always at host addresses.
    pub const fn sets_pointer_mode(self) -> Option<&'static str> {
        self.about().sets_pointer_mode
    }

    /// Whether calls run by such an object, in its context and stream.
    pub const fn is_handle(self) -> bool {
        self.about().is_handle
    }

    /// Whether an object is in a context, and ends with it.
    pub const fn is_in_context(self) -> bool {
        self.about().is_in_context
    }

    /// The bytes that one is charged of a GPU's memory when it is made.
    pub const fn device_bytes(self) -> u64 {
        self.about().device_mib << 20
    }

    /// The most that one client has.
    pub const fn most(self) -> usize {
        self.about().most
    }

    /// The library that makes them.
    ///
    /// # Panics
    ///
    /// If there is none: a test asks for that of each class.
    pub fn library(self) -> Library {
        let makes = |of: &&Function| of.makes().is_some_and(|(_, class)| class == self);
        let found = functions().find(makes);
        found
            .expect("a library makes objects of each class")
            .library()
    }

    /// The id of the `serial`-th object.
    pub fn id(self, serial: u64) -> u64 {
        object_id_of(self.number(), serial)
    }

    /// Whether this is an id of such an object.
    pub const fn has(self, id: u64) -> bool {
        object_kind(id) == self.number()
    }

    /// Whether a function that takes such objects takes one with this id: some of a library's are another's too.
    pub const fn takes(self, id: u64) -> bool {
        self.has(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::KINDS;

    #[test]
    fn each_class_has_a_number_of_its_own() {
        for (at, class) in Class::ALL.iter().enumerate() {
            assert_eq!(Class::from_number(class.number()), Some(*class));
            let others = &Class::ALL[at + 1..];
            assert!(others.iter().all(|of| of.number() != class.number()));
            assert!(KINDS.iter().all(|of| of.number != class.number()));
            assert!(class.most() > 0, "{class:?}");
            assert!(class.has(class.id(7)));
            assert!(class.library().functions().len() > 1);
        }
        assert_eq!(Class::from_number(0x10), None);
    }

    #[test]
    fn what_a_class_names_is_in_the_tables() {
        for class in Class::ALL {
            for name in [class.sets_stream(), class.sets_pointer_mode()]
                .into_iter()
                .flatten()
            {
                assert!(functions().any(|of| of.operation.name == name), "{name}");
            }
        }
    }
}
