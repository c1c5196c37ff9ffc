//! The questions, each a function of a [`Panel`](crate::panel::Panel), so that the CPU
//! and every GPU variant answer the very same cases.
//!
//! Each group has a macro that makes one `#[test]` of each of its checks; a new check is
//! added to the group's list and is then asked everywhere. The letters in the headings
//! are those of the list of inputs that the field got wrong.

pub mod distribution;
pub mod edges;
pub mod exact;
pub mod features;
pub mod properties;
pub mod reports;

/// One test a check: `$panel` is an `Option<Panel>`, `None` where there is nothing to
/// ask. Used by the groups' own macros.
#[macro_export]
macro_rules! check_tests {
    ($panel:expr, $group:ident: $($check:ident),+ $(,)?) => {
        $(
            #[test]
            fn $check() {
                if let Some(mut panel) = $panel {
                    $crate::checks::$group::$check(&mut panel);
                }
            }
        )+
    };
}
