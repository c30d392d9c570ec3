#!/bin/sh
# Prints 1 where the system's C compiler can include FoundationDB's client header and link its
# library, else 0. A 1 is remembered in the file named by $1.
[ -f "$1" ] && { echo 1; exit; }
prog='#define FDB_API_VERSION 730
#include <foundationdb/fdb_c.h>
int main(void) { return fdb_get_max_api_version() == 0; }'
if printf '%s\n' "$prog" | "${CC:-cc}" -x c - -lfdb_c -o /dev/null 2>/dev/null; then
	mkdir -p "$(dirname "$1")" && : >"$1"
	echo 1
else
	echo 0
fi
