//! [`choose_target`]: the processor and the version of the assembly language that code is compiled for.
//!
//! Code is stored as assembly text (PTX), which the driver compiles for the chip it finds. Text for a chip runs on
//! every later one, so a chip unknown to the code generator gets text for the last known one. The language version
//! must be no newer than the driver supports, and no older than the first one with the chip's name; otherwise LLVM
//! ends the process.

use octants_artifact::CodeTarget;

/// Chips that the code generator (LLVM 22) knows, and the first version of the language that has them: compute
/// capability times ten, version times ten.
const CHIPS: &[(u32, u32)] = &[
    (70, 60),
    (72, 61),
    (75, 63),
    (80, 70),
    (86, 71),
    (87, 74),
    (88, 90),
    (89, 78),
    (90, 78),
    (100, 86),
    (101, 86),
    (103, 88),
    (110, 90),
    (120, 87),
    (121, 88),
];

/// The newest language version that a driver supports: the CUDA version that the driver reports, and the language
/// version times ten. The code generator knows no later versions.
const VERSIONS: &[(i32, u32)] = &[
    (11020, 72),
    (11030, 73),
    (11040, 74),
    (11050, 75),
    (11060, 76),
    (11070, 77),
    (11080, 78),
    (12000, 80),
    (12010, 81),
    (12020, 82),
    (12030, 83),
    (12040, 84),
    (12050, 85),
    (12070, 86),
    (12080, 87),
    (12090, 88),
    (13000, 90),
];

/// The oldest supported CUDA version, as a driver reports it.
pub const OLDEST_DRIVER: i32 = VERSIONS[0].0;
/// The oldest supported compute capability, times ten.
pub const OLDEST_CHIP: u32 = CHIPS[0].0;

/// The supported chips, by NVIDIA's names.
pub fn chips() -> impl Iterator<Item = String> {
    CHIPS.iter().map(|(chip, _)| format!("sm_{chip}"))
}

/// The code target; `None` if the chip or the driver is too old.
pub fn choose_target(capability: (u32, u32), driver: i32) -> Option<CodeTarget> {
    let version = VERSIONS.iter().rev().find(|(cuda, _)| *cuda <= driver)?.1;
    let chip = capability.0 * 10 + capability.1;
    let best = CHIPS.iter().rev().find(|(known, needs)| *known <= chip && *needs <= version)?.0;
    Some(CodeTarget::Device {
        triple: "nvptx64-nvidia-cuda".into(),
        cpu: format!("sm_{best}"),
        features: format!("+ptx{version}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(capability: (u32, u32), driver: i32) -> String {
        match choose_target(capability, driver) {
            Some(CodeTarget::Device { cpu, features, .. }) => format!("{cpu} {features}"),
            _ => "none".into(),
        }
    }

    #[test]
    fn known_chips_and_drivers() {
        assert_eq!(target((9, 0), 13000), "sm_90 +ptx90");
        assert_eq!(target((9, 0), 11080), "sm_90 +ptx78");
        assert_eq!(target((8, 6), 12020), "sm_86 +ptx82");
        assert_eq!(target((7, 5), 12060), "sm_75 +ptx85");
        assert_eq!(target((10, 0), 12080), "sm_100 +ptx87");
        assert_eq!(target((12, 0), 12080), "sm_120 +ptx87");
        assert_eq!(target((12, 1), 12090), "sm_121 +ptx88");
        assert_eq!(target((7, 0), 11020), "sm_70 +ptx72");
    }

    #[test]
    fn future_chips_and_drivers_use_the_newest_known_target() {
        assert_eq!(target((12, 5), 14020), "sm_121 +ptx90");
        assert_eq!(target((13, 0), 13020), "sm_121 +ptx90");
        assert_eq!(target((8, 8), 12090), "sm_87 +ptx88", "8.8 has a name from 9.0 on alone");
        // A driver too old for the chip's name compiles for an earlier one of the same text.
        assert_eq!(target((10, 3), 12080), "sm_101 +ptx87");
        assert_eq!(target((8, 9), 11070), "sm_87 +ptx77");
    }

    #[test]
    fn chips_and_drivers_that_are_too_old_are_refused() {
        assert_eq!(target((6, 1), 13000), "none");
        assert_eq!(target((7, 0), 11010), "none");
    }

    #[test]
    fn no_target_has_a_version_older_than_its_chip() {
        for (chip, _) in CHIPS {
            for (driver, version) in VERSIONS {
                let Some(CodeTarget::Device { cpu, .. }) = choose_target((chip / 10, chip % 10), *driver) else {
                    panic!("{chip} with {driver}")
                };
                let (_, needs) = CHIPS.iter().find(|(c, _)| cpu == format!("sm_{c}")).expect("a chip of the table");
                assert!(needs <= version, "{cpu} with {version}");
            }
        }
    }
}
