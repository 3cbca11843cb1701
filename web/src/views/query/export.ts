/** An answer as a file: CSV for spreadsheets, JSON for programs. */

import type { Answered } from "./answer";

/** A cell that a spreadsheet reads as text, never as a formula. */
export function csvCell(value: unknown): string {
  let text = value === undefined || value === null ? "" : Array.isArray(value) ? value.join(" ") : typeof value === "object" ? JSON.stringify(value) : String(value);
  if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export function csv(answer: Answered): string {
  const lines = [answer.columns.map((column) => csvCell(column.name))];
  for (const row of answer.rows) lines.push(answer.columns.map((column) => csvCell(column.type === "age" && typeof row[column.name] === "number" ? new Date(row[column.name] as number).toISOString() : row[column.name])));
  return `${lines.map((line) => line.join(",")).join("\r\n")}\r\n`;
}

export function download(name: string, type: string, content: string): void {
  const address = URL.createObjectURL(new Blob([content], { type }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
