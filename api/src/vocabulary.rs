//! Enumerations whose variants are words of the API: each is written once.

/// Defines an enumeration with the list of its variants and the word of each, which is the variant's name.
macro_rules! vocabulary {
    (
        $(#[$attribute:meta])*
        pub enum $name:ident {
            $($(#[$of_variant:meta])* $variant:ident),* $(,)?
        }
    ) => {
        $(#[$attribute])*
        pub enum $name {
            $($(#[$of_variant])* $variant,)*
        }

        impl $name {
            /// Every variant, in the order of declaration.
            pub const ALL: [Self; [$(Self::$variant),*].len()] = [$(Self::$variant),*];

            /// The word that the API carries.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($variant),)*
                }
            }
        }
    };
}

pub(crate) use vocabulary;

#[cfg(test)]
mod tests {
    vocabulary! {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Colour {
            /// Like grass.
            Green,
            Red,
        }
    }

    #[test]
    fn every_variant_is_in_the_list_with_its_name() {
        assert_eq!(Colour::ALL.map(Colour::as_str), ["Green", "Red"]);
    }
}
