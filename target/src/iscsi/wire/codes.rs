//! Tables of protocol numbers: name, value, sentence.

/// An open enum of numbers; bits outside the mask are not the number's.
macro_rules! codes {
    (
        $(#[$doc:meta])*
        $type:ident: $number:ty, $mask:literal;
        $($name:ident = $value:literal $text:literal;)*
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $type {
            $(#[doc = concat!($text, " (", stringify!($value), ").")] $name,)*
            /// One that is reserved, or a vendor's.
            Unknown($number),
        }

        impl $type {
            /// What a number on the wire says.
            #[must_use]
            pub const fn from_wire(number: $number) -> Self {
                match number & $mask {
                    $($value => Self::$name,)*
                    other => Self::Unknown(other),
                }
            }

            /// The number on the wire.
            #[must_use]
            pub const fn to_wire(self) -> $number {
                match self {
                    $(Self::$name => $value,)*
                    Self::Unknown(other) => other & $mask,
                }
            }

            /// What it means, in words.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                    Self::Unknown(_) => "unknown",
                }
            }
        }
    };
}

pub(super) use codes;
