#!/bin/sh
# Starts a frontend over FoundationDB. Arguments go to "headwater serve".
#
# The client rewrites its cluster file when coordinators change, so it gets a copy it may write
# to. The original is FDB_CLUSTER_FILE_CONTENTS, or the file FDB_CLUSTER_FILE, which may be
# mounted read-only.
set -eu
copy=/var/lib/headwater/fdb.cluster
if [ -n "${FDB_CLUSTER_FILE_CONTENTS:-}" ]; then
	printf '%s\n' "$FDB_CLUSTER_FILE_CONTENTS" >"$copy"
else
	cp "${FDB_CLUSTER_FILE:-/etc/foundationdb/fdb.cluster}" "$copy"
fi
unset FDB_CLUSTER_FILE FDB_CLUSTER_FILE_CONTENTS
exec /usr/bin/headwater serve --store fdb --cluster-file "$copy" "$@"
