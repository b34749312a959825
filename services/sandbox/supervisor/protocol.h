/* The numbers of the protocol. docs/reference/supervisor.md says what they mean; the Python side
 * (services/sandbox/supervised/protocol.py) is compared with this file by a test. */
#ifndef LONGHAUL_PROTOCOL_H
#define LONGHAUL_PROTOCOL_H

#define PROTOCOL_MAGIC 0xA5
#define PROTOCOL_VERSION 1
#define HEADER_BYTES 20
#define MAX_PAYLOAD 262144
#define MAX_ID 64
#define NONCE_BYTES 16
#define NET_WINDOW 131072

enum message {
    /* requests: each is answered with its tag, by what is named beside it or by ERROR */
    MSG_HELLO = 1,   /* HELLO_OK */
    MSG_PING = 2,    /* PONG */
    MSG_EXEC = 3,    /* EXEC_OK */
    MSG_ATTACH = 4,  /* EXEC_OK */
    MSG_CREDIT = 5,  /* nothing */
    MSG_STDIN = 6,   /* OK, when the bytes are in the pipe */
    MSG_SIGNAL = 7,  /* OK */
    MSG_RESIZE = 8,  /* OK */
    MSG_KILL = 9,    /* OK */
    MSG_LIST = 10,   /* ENTRY for each, then OK */
    MSG_FORGET = 11, /* OK */
    MSG_SHUTDOWN = 12, /* OK */
    MSG_NET_SEND = 13,   /* nothing, as the two after it */
    MSG_NET_CREDIT = 14,
    MSG_NET_CLOSE = 15,
    MSG_FILE_STAT = 32,
    MSG_FILE_LIST = 33,
    MSG_FILE_READ = 34,
    MSG_FILE_WRITE = 35,
    MSG_FILE_ABORT = 36,
    MSG_FILE_MKDIR = 37,
    MSG_FILE_MOVE = 38,
    MSG_FILE_REMOVE = 39,
    /* answers */
    MSG_HELLO_OK = 65,
    MSG_PONG = 66,
    MSG_EXEC_OK = 67,
    MSG_OK = 68,
    MSG_ERROR = 69,
    MSG_ENTRY = 70,
    MSG_FILE_STAT_OK = 96,
    MSG_FILE_LIST_OK = 97,
    MSG_FILE_READ_OK = 98,
    MSG_FILE_WRITE_OK = 99,
    /* events: tag 0 */
    MSG_DATA = 128,
    MSG_EXIT = 129,
    MSG_CLOSED = 130,
    MSG_NET_OPEN = 131,
    MSG_NET_BYTES = 132,
    MSG_NET_TAKEN = 133,
    MSG_NET_OVER = 134
};

enum frame_flag { FLAG_END = 1, FLAG_PARENTS = 2, FLAG_RECURSIVE = 4, FLAG_KEEP = 8 };

enum exec_flag { EXEC_PTY = 1, EXEC_SHELL = 2, EXEC_MERGE = 4, EXEC_STDIN = 8, EXEC_BACKGROUND = 16 };

enum stream_number { STREAM_STDOUT = 1, STREAM_STDERR = 2 };

enum exec_state { STATE_RUNNING = 1, STATE_EXITED = 2, STATE_CLOSED = 3 };

enum exit_reason {
    REASON_NONE = 0,
    REASON_EXITED = 1,
    REASON_TIMEOUT = 2,
    REASON_OOM = 3,
    REASON_KILLED = 4,
    REASON_LOST = 5,
    REASON_OUTPUT_LIMIT = 6,
    REASON_SPAWN_FAILED = 7
};

enum entry_bit { ENTRY_OUTPUT_OPEN = 1, ENTRY_OOM_SEEN = 2, ENTRY_OUTPUT_DROPPED = 4 };

enum fault {
    FAULT_BAD_FRAME = 1,
    FAULT_VERSION = 2,
    FAULT_BAD_REQUEST = 3,
    FAULT_STALE = 4,
    FAULT_NO_EXEC = 5,
    FAULT_MISMATCH = 6,
    FAULT_LIMIT = 7,
    FAULT_SPAWN = 8,
    FAULT_NOT_RUNNING = 9,
    FAULT_STILL_RUNNING = 10,
    FAULT_BUSY = 11,
    FAULT_FILE = 12,
    FAULT_HELLO_FIRST = 13
};

#endif
