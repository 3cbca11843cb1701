/** Log lines without terminal escape codes and control characters: they are text, whatever a program writes. */

// eslint-disable-next-line no-control-regex
const ESCAPES = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\-_]|[ -/]+[0-~])/g;
// eslint-disable-next-line no-control-regex
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f\u0080-\u009f\u202a-\u202e\u2066-\u2069]/g;

export function plain(line: string): string {
  return line.replace(ESCAPES, "").replace(CONTROLS, "");
}
