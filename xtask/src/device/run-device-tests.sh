#!/usr/bin/env bash
# Runs what `cargo xtask device-bundle` put beside this file.
#
#   run-device-tests.sh [test|sanitize|bench|demo] [ARGUMENTS...]
#
# Needs the NVIDIA driver and nothing else; `sanitize` needs compute-sanitizer too,
# in PATH or named by COMPUTE_SANITIZER, and `demo` a model: --model FILE.gguf.
# ARGUMENTS go to the programs. Exits with an error if anything failed.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
tests=(device device_doors device_features device_programmatic)
tools=(memcheck racecheck synccheck initcheck)

# Without a GPU the tests must fail, not pass by skipping.
export FLASH_SAMPLING_REQUIRE_GPU=1

# Containers keep the driver's libraries where the loader does not look by itself.
for folder in /usr/local/nvidia/lib64 /usr/lib/wsl/lib; do
    if [ -e "$folder/libcuda.so.1" ]; then
        export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder"
    fi
done

# All of them, also after a failure: a GPU machine is not always at hand.
run_tests() {
    local failed=0
    for test in "${tests[@]}"; do
        "$here/$test" "$@" || failed=1
    done
    return "$failed"
}

# Every tool over every test, a process each and several side by side: minutes instead
# of hours. Tests named `long_…` repeat what shorter ones cover; the one that measures
# that a call does not wait cannot hold under a tool, which waits for every launch.
sanitize() {
    export sanitizer="${COMPUTE_SANITIZER:-compute-sanitizer}"
    command -v "$sanitizer" >/dev/null || {
        echo "no $sanitizer: it comes with the CUDA toolkit; name it in COMPUTE_SANITIZER" >&2
        exit 1
    }
    export FLASH_SAMPLING_SANITIZER=1 here
    logs="$(mktemp -d)"
    export logs
    for test in "${tests[@]}"; do
        for name in $("$here/$test" --list --format terse "$@" | sed -n 's/: test$//p'); do
            case "$name" in
                long_* | a_call_allocates_nothing_and_does_not_wait) continue ;;
            esac
            printf '%s\n' "${tools[@]/#/$test $name }"
        done
    done >"$logs/jobs"
    [ -s "$logs/jobs" ] || {
        echo "no test of that name" >&2
        exit 1
    }
    xargs -P "${JOBS:-12}" -L 1 bash -c 'sanitize_test "$@"' - <"$logs/jobs" | tee "$logs/outcomes"
    local tool clean jobs failed=0
    printf '\n'
    for tool in "${tools[@]}"; do
        clean="$(grep -c "^$tool .* clean " "$logs/outcomes" || true)"
        jobs="$(grep -c " $tool\$" "$logs/jobs")"
        printf '%-10s %s of %s tests clean\n' "$tool" "$clean" "$jobs"
        [ "$clean" -eq "$jobs" ] || failed=1
    done
    [ "$failed" -eq 0 ] || {
        echo "what failed said: $logs" >&2
        return 1
    }
}

# One test under one tool; one line. A test that the tool did not see run is no success.
sanitize_test() {
    local log="$logs/$3.$1.${2//::/.}" outcome=clean start=$SECONDS
    "$sanitizer" --tool "$3" --error-exitcode 9 "$here/$1" --exact "$2" >"$log" 2>&1 ||
        outcome="failed ($?)"
    grep -q '1 passed' "$log" || outcome="failed (did not pass)"
    printf '%-10s %s %s %s s\n' "$3" "$2" "$outcome" $((SECONDS - start))
}
export -f sanitize_test

# The same text on the CPU and on the GPU.
demo() {
    local cpu gpu
    cpu="$("$here/generate" --device cpu "$@")"
    gpu="$("$here/generate" --device cuda "$@")"
    printf '%s\n' "$gpu"
    if [ "$cpu" != "$gpu" ]; then
        printf '\nthe texts differ; on the CPU it is\n%s\n' "$cpu" >&2
        return 1
    fi
    echo "the same text on the CPU and on the GPU"
}

command="${1:-test}"
[ $# -eq 0 ] || shift
case "$command" in
    test) run_tests "$@" ;;
    sanitize) sanitize "$@" ;;
    bench) "$here/decode" "$@" ;;
    demo) demo "$@" ;;
    *)
        sed -n '2,/^set/ { /^#/ s/^# \{0,1\}//p }' "$0" >&2
        exit 2
        ;;
esac
