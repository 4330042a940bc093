#!/bin/sh
# Validates an mlx5 device of this machine: ./validate [DEVICE | --stand-in] [options]. README.md of this
# archive explains it, and ./validate --help lists the options.

here=$(dirname "$0")
read -r machine < "$here/machine"
own=$(uname -m)
if [ "$own" != "$machine" ]; then
    echo "validate: this archive is for $machine, and this machine is $own: take the other archive" >&2
    exit 2
fi
if ! said=$("$here/bin/runner" validate --help 2>&1); then
    echo "validate: the programs of this archive do not start here. They need Linux with glibc" >&2
    echo "2.34 or later (Ubuntu 22.04, Debian 12). The loader says: $said" >&2
    exit 2
fi
stand_in=
for word; do
    shift
    if [ "$word" = --stand-in ]; then stand_in=yes; else set -- "$@" "$word"; fi
done
if [ -n "$stand_in" ]; then
    export MLX5_VALIDATE_COMMAND="./validate --stand-in"
    exec "$here/emulator/mlx5-emulate" -- "$here/bin/runner" validate "$@" --programs "$here/bin"
fi
case ${1-} in
    "" | -*) MLX5_VALIDATE_COMMAND=./validate ;;
    *) MLX5_VALIDATE_COMMAND="./validate $1" ;;
esac
export MLX5_VALIDATE_COMMAND
exec "$here/bin/runner" validate "$@" --programs "$here/bin"
